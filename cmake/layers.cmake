# muster_layer(NAME SOURCES a.c b.c [DEPENDS other_layer PkgConfig::X]): one static library.
function(muster_layer name)
    cmake_parse_arguments(L "" "" "SOURCES;DEPENDS" ${ARGN})
    add_library(${name} STATIC ${L_SOURCES})
    target_link_libraries(${name} PUBLIC ${L_DEPENDS})
endfunction()

# Seconds after which a test hangs: sanitizers cost a factor of ten, and machines are shared.
set(MUSTER_TEST_TIMEOUT 600)
if(MUSTER_SANITIZE)
    set(MUSTER_TEST_TIMEOUT 1800)
endif()

# muster_unit(t_name DEPENDS layer...): one cmocka program a file, one ctest entry.
function(muster_unit name)
    cmake_parse_arguments(U "" "" "SOURCES;DEPENDS" ${ARGN})
    add_executable(${name} ${name}.c ${U_SOURCES})
    target_link_libraries(${name} PRIVATE ${U_DEPENDS} PkgConfig::CMOCKA)
    target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${MUSTER_TEST_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# muster_fuzz(f_name DEPENDS layer...): a libFuzzer target with clang and MUSTER_FUZZ; otherwise a
# program that runs the files of its corpus once, so that every check replays every seed.
function(muster_fuzz name)
    cmake_parse_arguments(F "" "" "DEPENDS" ${ARGN})
    if(MUSTER_FUZZ)
        add_executable(${name} ${name}.c)
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    else()
        add_executable(${name} ${name}.c replay.c)
        add_test(NAME ${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name}
                 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(${name} PROPERTIES TIMEOUT ${MUSTER_TEST_TIMEOUT})
    endif()
    target_link_libraries(${name} PRIVATE ${F_DEPENDS})
    target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
endfunction()
