# Flags that every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(ANABRANCH_CCACHE ccache)
if(ANABRANCH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ANABRANCH_CCACHE})
endif()

# Every fused multiply-add is written out: the compiler may not make one, so that all targets and
# compilers give the same bits.
add_compile_options(-ffp-contract=off)
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(ANABRANCH_WERROR)
  add_compile_options(-Werror)
endif()
if(ANABRANCH_SANITIZE)
  add_compile_options(-fsanitize=${ANABRANCH_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${ANABRANCH_SANITIZE})
endif()
# libFuzzer counts which edges ran: everything but the kernels and the system's headers is
# instrumented for it; the targets under tests/fuzz link the driver.
if(ANABRANCH_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "ANABRANCH_FUZZ is libFuzzer, expected Clang and not "
                        "${CMAKE_CXX_COMPILER_ID}: use the preset 'fuzz'")
  endif()
  # Comparisons are left out: inputs are choices, not values that the library compares.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
endif()
