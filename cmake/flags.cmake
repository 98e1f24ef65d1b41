# Compiler flags: the warnings that our presets turn into errors, hardening, sanitizers.
include(CheckCCompilerFlag)
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()
# must() and assert-like checks stay in every build.
set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -DMUSTER_DEBUG=1")
if(MUSTER_SANITIZE)
    # Lines are enough for a report; following variables through the kernels took a third of their compilation.
    set(CMAKE_C_FLAGS_DEBUG "-O1 -g1 -DMUSTER_DEBUG=1")
endif()

add_compile_options(
    -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wdouble-promotion -Wformat=2 -Wvla
    -Wundef -Wpointer-arith -Wcast-qual -Wcast-align -Wwrite-strings -Wstrict-prototypes
    -Wmissing-prototypes -Wold-style-definition -Wimplicit-fallthrough -Wswitch-enum
    -Wnull-dereference -fno-common -fstack-protector-strong)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wlogical-op -Wduplicated-cond -Wduplicated-branches)
endif()
if(MUSTER_WERROR)
    add_compile_options(-Werror)
endif()
if(MUSTER_FUZZ)
    # Every layer counts its branches, not just the target's own file: libFuzzer steers by them.
    # Casts of char pointers at an offset and INFINITY in a double are clang's to warn of, not gcc's.
    add_compile_options(-fsanitize=fuzzer-no-link -Wno-cast-align -Wno-double-promotion)
endif()
if(MUSTER_SANITIZE)
    # gcc's flow analysis reports false null dereferences once the sanitizers add their branches.
    add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=undefined -Wno-null-dereference)
    add_link_options(-fsanitize=${MUSTER_SANITIZE})
else()
    # Level 3 checks objects whose size is known only at run time; gcc 12 and clang 15 have it.
    set(fortify 2)
    if((CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 12) OR
       (CMAKE_C_COMPILER_ID MATCHES "Clang" AND CMAKE_C_COMPILER_VERSION VERSION_GREATER_EQUAL 15))
        set(fortify 3)
    endif()
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${fortify} -fstack-clash-protection)
    # A variable that was never set reads as zero, not as what a caller left on the stack.
    check_c_compiler_flag(-ftrivial-auto-var-init=zero MUSTER_HAS_AUTO_INIT)
    if(MUSTER_HAS_AUTO_INIT)
        add_compile_options(-ftrivial-auto-var-init=zero)
    endif()
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        add_compile_options(-fcf-protection)
    endif()
    add_link_options(-pie -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code)
endif()
add_compile_definitions(_GNU_SOURCE MUSTER_VERSION="${PROJECT_VERSION}")
include_directories(${CMAKE_SOURCE_DIR})
