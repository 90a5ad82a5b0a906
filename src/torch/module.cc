// The Python module anabranch._C (limited API, CPython >= 3.10). Importing it registers the
// operators; it has one function of its own, shape inference in the library's words.
#include <Python.h>

#include <algorithm>
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

std::size_t CountTensors(const PassSpec& spec) {
  return static_cast<std::size_t>(
      std::count_if(spec.arguments.begin(), spec.arguments.end(),
                    [](const Argument& a) { return !a.output && a.list == nullptr; }));
}

std::size_t CountNumbers(const PassSpec& spec) {
  const auto attributes = std::count_if(spec.attributes.begin(), spec.attributes.end(),
                                        [](const Attribute& a) { return a.python != nullptr; });
  return static_cast<std::size_t>(attributes) + spec.asks.size();
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
  const Pass* pass = FindPass(name);
  if (pass == nullptr || CountTensors(*pass->spec) != inputs.size() ||
      CountNumbers(*pass->spec) != values.size()) {
    return PyErr_Format(PyExc_TypeError,
                        "infer: no operator %s with %zd tensors and %zd attributes", name,
                        PyTuple_Size(tensors), PyTuple_Size(attributes));
  }
  std::vector<TensorView> result;
  if (Status status = InferOutputs(*pass, inputs, list, values, &result); !status.ok()) {
    PyErr_SetString(PyExc_ValueError, status.message().c_str());
    return nullptr;
  }
  PyObject* outputs = PyTuple_New(static_cast<Py_ssize_t>(result.size()));
  if (outputs == nullptr) return nullptr;
  for (std::size_t i = 0; i < result.size(); ++i) {
    PyObject* output = ToPython(result[i]);
    if (output == nullptr) {
      Py_DECREF(outputs);
      return nullptr;
    }
    PyTuple_SetItem(outputs, static_cast<Py_ssize_t>(i), output);
  }
  return outputs;
}

// None where there is no text.
PyObject* Text(const char* text) {
  if (text == nullptr) Py_RETURN_NONE;
  return PyUnicode_FromString(text);
}

PyObject* DescribeArgument(const Argument& a) {
  static constexpr const char* kTypes[] = {"activation", "coefficient", "parameter", "same"};
  static constexpr const char* kPresences[] = {"required", "optional", "residual",
                                               "with",     "with",     "together"};
  return Py_BuildValue("(sNsssNNi)", a.python, PyBool_FromLong(a.list != nullptr), a.shape.text(),
                       kTypes[static_cast<int>(a.type)], kPresences[static_cast<int>(a.presence)],
                       Text(a.with), Text(a.like), a.group);
}

bool Append(PyObject* list, PyObject* item) {
  const bool appended = item != nullptr && PyList_Append(list, item) == 0;
  Py_XDECREF(item);
  return appended;
}

// (name, leader, inputs, outputs, numbers, asks, rows, form): see anabranch._ops._description.
PyObject* DescribePass(const PassSpec& spec) {
  static constexpr const char* kRows[] = {"", "gates", "head"};
  static constexpr const char* kForms[] = {"matrix", "permutation", "none"};
  PyObject* inputs = PyList_New(0);
  PyObject* outputs = PyList_New(0);
  PyObject* numbers = PyList_New(0);
  PyObject* asks = PyList_New(0);
  bool made = inputs != nullptr && outputs != nullptr && numbers != nullptr && asks != nullptr;
  for (const Argument& a : spec.arguments) {
    made = made && Append(a.output ? outputs : inputs, DescribeArgument(a));
  }
  for (const Attribute& a : spec.attributes) {
    if (a.python != nullptr) made = made && Append(numbers, Text(a.python));
  }
  for (const Ask& ask : spec.asks) {
    made = made && Append(asks, Py_BuildValue("(si)", ask.python, ask.group));
  }
  if (made) {
    return Py_BuildValue("(ssNNNNss)", spec.name, spec.Find(spec.leader)->python, inputs, outputs,
                         numbers, asks, kRows[static_cast<int>(spec.rows)],
                         kForms[static_cast<int>(spec.residual)]);
  }
  for (PyObject* list : {inputs, outputs, numbers, asks}) Py_XDECREF(list);
  return nullptr;
}

PyObject* Describe(PyObject* /*self*/, PyObject* /*arguments*/) {
  PyObject* passes = PyList_New(0);
  if (passes == nullptr) return nullptr;
  for (const Pass& pass : Passes()) {
    if (Append(passes, DescribePass(*pass.spec))) continue;
    Py_DECREF(passes);
    return nullptr;
  }
  return passes;
}

PyMethodDef methods[] = {
    {"describe", &Describe, METH_NOARGS, "The descriptions of all operators, as plain data."},
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
