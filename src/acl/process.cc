// What is one per process: initialisation, parameters, names, the log, half floats.
#include <pthread.h>

#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/aclnn_base.h"
#include "src/acl/context.h"
#include "src/acl/message.h"
#include "src/acl/per_process.h"
#include "src/acl/profile.h"
#include "src/acl/tensor.h"
#include "src/core/half.h"

namespace anabranch::acl {
namespace {

using Parameters = std::map<int, std::int64_t>;

struct Process {
  std::mutex mutex;
  std::uint64_t references = 0;  // aclInit calls that nothing has taken back
  bool finalised = false;
  Parameters parameters;
};

constinit PerProcess<Process> process_state;
[[maybe_unused]] const int fork_handler =
    pthread_atfork(nullptr, nullptr, [] { process_state.Abandon(); });

Process& TheProcess() { return process_state.Get(); }

// The contents of a configuration have no effect here, but a wrong path is a mistake to report.
int CheckConfiguration(const char* call, const char* path, int code) {
  if (path == nullptr || *path == '\0') return ACL_SUCCESS;
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) {
    return Fail(code, std::string(call) + ": cannot read " + path + ", expected a file or null");
  }
  std::fclose(file);
  return ACL_SUCCESS;
}

int Init(const char* path) {
  if (FindProfile() == nullptr) return Fail(ACL_ERROR_INVALID_PARAM, UnknownProfile("aclInit"));
  if (const int code = CheckConfiguration("aclInit", path, ACL_ERROR_INVALID_PARAM); code != 0) {
    return code;
  }
  Process& process = TheProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  process.finalised = false;
  if (++process.references > 1) {
    return Fail(ACL_ERROR_REPEAT_INITIALIZE, "aclInit: was called before, expected one call");
  }
  return ACL_SUCCESS;
}

int Finalize(const char* call, bool all, std::uint64_t* left) {
  Process& process = TheProcess();
  const std::lock_guard<std::mutex> lock(process.mutex);
  if (process.finalised) {
    return Fail(ACL_ERROR_REPEAT_FINALIZE,
                std::string(call) + ": was called before, expected one call for an aclInit");
  }
  process.references = all || process.references == 0 ? 0 : process.references - 1;
  process.finalised = process.references == 0;
  if (left != nullptr) *left = process.references;
  return ACL_SUCCESS;
}

int CheckParameter(const char* call, aclSysParamOpt option) {
  if (option >= ACL_OPT_DETERMINISTIC && option <= ACL_OPT_STRONG_CONSISTENCY) return ACL_SUCCESS;
  return Fail(ACL_ERROR_INVALID_PARAM, std::string(call) + ": opt is " +
                                           std::to_string(static_cast<int>(option)) +
                                           ", expected an aclSysParamOpt");
}

int GetParameter(const char* call, const Parameters& parameters, aclSysParamOpt option,
                 std::int64_t* value) {
  if (value == nullptr) {
    return Fail(ACL_ERROR_INVALID_PARAM,
                std::string(call) + ": value is null, expected an address");
  }
  const auto found = parameters.find(option);
  if (found == parameters.end()) {
    return Fail(ACL_ERROR_RT_SYSPARAMOPT_NOT_SET,
                std::string(call) + ": opt " + std::to_string(static_cast<int>(option)) +
                    " was never set, expected it to be set before");
  }
  *value = found->second;
  return ACL_SUCCESS;
}

// The least level that the log shows: ANABRANCH_LOG_LEVEL 0..3 as aclLogLevel, else errors only.
int LogLevel() {
  const char* text = std::getenv("ANABRANCH_LOG_LEVEL");
  const bool valid = text != nullptr && text[0] >= '0' && text[0] <= '3' && text[1] == '\0';
  return valid ? text[0] - '0' : static_cast<int>(ACL_ERROR);
}

}  // namespace
}  // namespace anabranch::acl

namespace acl = anabranch::acl;

extern "C" {

aclError aclInit(const char* configPath) {
  return acl::Guarded("aclInit", [&] { return acl::Init(configPath); });
}

aclError aclFinalize() {
  return acl::Guarded("aclFinalize", [] { return acl::Finalize("aclFinalize", true, nullptr); });
}

aclError aclFinalizeReference(uint64_t* refCount) {
  return acl::Guarded("aclFinalizeReference",
                      [&] { return acl::Finalize("aclFinalizeReference", false, refCount); });
}

aclnnStatus aclnnInit(const char* configPath) {
  return acl::Guarded("aclnnInit", [&] {
    return acl::CheckConfiguration("aclnnInit", configPath, ACLNN_ERR_PARAM_INVALID);
  });
}

aclnnStatus aclnnFinalize() { return ACLNN_SUCCESS; }

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return acl::Guarded("aclrtSetSysParamOpt", [&] {
    const int code = acl::CheckParameter("aclrtSetSysParamOpt", opt);
    if (code != 0) return code;
    acl::Process& process = acl::TheProcess();
    const std::lock_guard<std::mutex> lock(process.mutex);
    process.parameters[opt] = value;
    return ACL_SUCCESS;
  });
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return acl::Guarded("aclrtGetSysParamOpt", [&] {
    const int code = acl::CheckParameter("aclrtGetSysParamOpt", opt);
    if (code != 0) return code;
    acl::Process& process = acl::TheProcess();
    const std::lock_guard<std::mutex> lock(process.mutex);
    return acl::GetParameter("aclrtGetSysParamOpt", process.parameters, opt, value);
  });
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
  return acl::Guarded("aclrtCtxSetSysParamOpt", [&] {
    const int code = acl::CheckParameter("aclrtCtxSetSysParamOpt", opt);
    if (code != 0) return code;
    const std::shared_ptr<acl::DeviceContext> context = acl::CurrentContext();
    if (!context) return acl::NoContext("aclrtCtxSetSysParamOpt");
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->parameters[opt] = value;
    return ACL_SUCCESS;
  });
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t* value) {
  return acl::Guarded("aclrtCtxGetSysParamOpt", [&] {
    const int code = acl::CheckParameter("aclrtCtxGetSysParamOpt", opt);
    if (code != 0) return code;
    const std::shared_ptr<acl::DeviceContext> context = acl::CurrentContext();
    if (!context) return acl::NoContext("aclrtCtxGetSysParamOpt");
    const std::lock_guard<std::mutex> lock(context->mutex);
    return acl::GetParameter("aclrtCtxGetSysParamOpt", context->parameters, opt, value);
  });
}

aclError aclrtGetRunMode(aclrtRunMode* runMode) {
  if (runMode == nullptr) {
    return acl::Fail(ACL_ERROR_INVALID_PARAM,
                     "aclrtGetRunMode: runMode is null, expected an address");
  }
  *runMode = ACL_HOST;
  return ACL_SUCCESS;
}

const char* aclrtGetSocName() {
  const char* name = "";
  acl::Guarded("aclrtGetSocName", [&name]() -> int {
    const acl::Profile* profile = acl::FindProfile();
    if (profile == nullptr) {
      return acl::Fail(ACL_ERROR_INVALID_PARAM, acl::UnknownProfile("aclrtGetSocName"));
    }
    name = profile->soc;
    return ACL_SUCCESS;
  });
  return name;
}

void aclAppLog(aclLogLevel logLevel, const char* func, const char* file, uint32_t line,
               const char* fmt, ...) {
  if (fmt == nullptr || static_cast<int>(logLevel) < acl::LogLevel()) return;
  static const char* const kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  const bool known = logLevel >= ACL_DEBUG && logLevel <= ACL_ERROR;
  std::va_list arguments;
  va_start(arguments, fmt);
  flockfile(stderr);  // one line stays one line
  std::fprintf(stderr, "[%s] %s:%u %s: ", known ? kNames[logLevel] : "LOG",
               file != nullptr ? file : "?", line, func != nullptr ? func : "?");
  std::vfprintf(stderr, fmt, arguments);
  std::fputc('\n', stderr);
  funlockfile(stderr);
  va_end(arguments);
}

size_t aclDataTypeSize(aclDataType dataType) { return acl::ElementBytes(dataType); }

float aclFloat16ToFloat(aclFloat16 value) { return anabranch::Float16ToFloat(value); }

aclFloat16 aclFloatToFloat16(float value) {
  if (std::isnan(value) || value >= 65504.0f) return 0x7bff;
  if (value <= -65504.0f) return 0xfbff;
  return anabranch::FloatToFloat16(value);
}

}  // extern "C"
