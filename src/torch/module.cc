// The Python module anabranch._C (limited API, CPython >= 3.10). Importing it registers the
// operators; it has one function of its own, shape inference in the library's words.
#include <Python.h>

#include <string>
#include <vector>

#include "src/torch/call.h"

namespace anabranch::torch_face {
namespace {

// (dtype name, sizes) or None -> operand. False with a Python error set.
bool ParseTensor(PyObject* item, Operand* operand) {
  if (item == Py_None) return true;
  PyObject* dtype = nullptr;
  PyObject* sizes = nullptr;
  if (!PyArg_ParseTuple(item, "UO!", &dtype, &PyTuple_Type, &sizes)) return false;
  const char* text = PyUnicode_AsUTF8AndSize(dtype, nullptr);
  if (text == nullptr) return false;
  Dims dims;
  for (Py_ssize_t i = 0; i < PyTuple_Size(sizes); ++i) {
    const long long size = PyLong_AsLongLong(PyTuple_GetItem(sizes, i));
    if (size == -1 && PyErr_Occurred() != nullptr) return false;
    dims.push_back(size);
  }
  *operand = ToOperand(text, dims);
  return true;
}

bool ParseTensors(PyObject* tuple, std::vector<Operand>* operands) {
  operands->resize(static_cast<std::size_t>(PyTuple_Size(tuple)));
  for (std::size_t i = 0; i < operands->size(); ++i) {
    PyObject* item = PyTuple_GetItem(tuple, static_cast<Py_ssize_t>(i));
    if (!ParseTensor(item, &(*operands)[i])) return false;
  }
  return true;
}

bool ParseAttributes(PyObject* tuple, std::vector<double>* values) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i) {
    values->push_back(PyFloat_AsDouble(PyTuple_GetItem(tuple, i)));
    if (PyErr_Occurred() != nullptr) return false;
  }
  return true;
}

PyObject* ToPython(const TensorView& view) {
  if (!view.defined()) Py_RETURN_NONE;
  PyObject* sizes = PyTuple_New(view.rank());
  if (sizes == nullptr) return nullptr;
  for (int i = 0; i < view.rank(); ++i) {
    PyTuple_SetItem(sizes, i, PyLong_FromLongLong(view.sizes[i]));
  }
  return Py_BuildValue("(sN)", DTypeName(view.dtype), sizes);
}

PyObject* Infer(PyObject* /*self*/, PyObject* arguments) {
  const char* name = nullptr;
  PyObject* tensors = nullptr;
  PyObject* blocks = nullptr;
  PyObject* attributes = nullptr;
  if (!PyArg_ParseTuple(arguments, "sO!O!O!", &name, &PyTuple_Type, &tensors, &PyTuple_Type,
                        &blocks, &PyTuple_Type, &attributes)) {
    return nullptr;
  }
  std::vector<Operand> inputs;
  std::vector<Operand> list;
  std::vector<double> values;
  if (!ParseTensors(tensors, &inputs) || !ParseTensors(blocks, &list) ||
      !ParseAttributes(attributes, &values)) {
    return nullptr;
  }
  const InferEntry* entry = FindInfer(name);
  if (entry == nullptr || entry->inputs != inputs.size() || entry->attributes != values.size()) {
    return PyErr_Format(PyExc_TypeError,
                        "infer: no operator %s with %zd tensors and %zd attributes", name,
                        PyTuple_Size(tensors), PyTuple_Size(attributes));
  }
  const InferResult result = entry->infer(inputs, list, values);
  if (!result.status.ok()) {
    PyErr_SetString(PyExc_ValueError, result.status.message().c_str());
    return nullptr;
  }
  PyObject* outputs = PyTuple_New(static_cast<Py_ssize_t>(result.outputs.size()));
  if (outputs == nullptr) return nullptr;
  for (std::size_t i = 0; i < result.outputs.size(); ++i) {
    PyObject* output = ToPython(result.outputs[i]);
    if (output == nullptr) {
      Py_DECREF(outputs);
      return nullptr;
    }
    PyTuple_SetItem(outputs, static_cast<Py_ssize_t>(i), output);
  }
  return outputs;
}

PyMethodDef methods[] = {
    {"infer", &Infer, METH_VARARGS,
     "infer(op, tensors, blocks, attributes): sizes and dtypes of an operator's outputs.\n\n"
     "A tensor is (dtype, sizes) or None; a size of -1 is unknown. Raises ValueError in the words\n"
     "of the operator's own checks."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_C",
                          "Registers torch.ops.anabranch.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace anabranch::torch_face

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__C() {
  PyObject* module = PyModule_Create(&anabranch::torch_face::definition);
  if (module != nullptr) PyModule_AddStringConstant(module, "version", ANABRANCH_VERSION);
  return module;
}
