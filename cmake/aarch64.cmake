# Cross build for 64-bit Arm with Debian's compiler; programs of the build run under qemu-user.
# The preset leaves the examples out: Debian 12's cross compiler (GCC 12.2) fails on them with an
# internal error of its vectoriser; the tests call the same functions. Needs what `scripts/setup.sh aarch64` installs: the libraries of that architecture beside ours.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
