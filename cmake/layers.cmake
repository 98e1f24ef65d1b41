# muster_layer(NAME SOURCES a.c b.c [DEPENDS other_layer PkgConfig::X]): one static library.
function(muster_layer name)
    cmake_parse_arguments(L "" "" "SOURCES;DEPENDS" ${ARGN})
    add_library(${name} STATIC ${L_SOURCES})
    target_link_libraries(${name} PUBLIC ${L_DEPENDS})
endfunction()

# muster_waits(TARGET...): layers that wait for others more than they compute. Under ASan they are compiled without optimising,
# and its checks are calls: 0.25 s of processor time a file instead of 0.38. What is checked is the same.
function(muster_waits)
    if(MUSTER_FUZZ OR NOT MUSTER_SANITIZE MATCHES address)
        return()
    endif()
    foreach(target ${ARGN})
        target_compile_options(${target} PRIVATE -O0)
        if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
            target_compile_options(${target} PRIVATE --param=asan-instrumentation-with-call-threshold=0)
        endif()
    endforeach()
endfunction()

# Seconds after which a test is taken to hang. No test decides by it: the longest takes a twentieth of this
# on two idle cores, so a machine a quarter as fast that is shared by four passes too.
set(MUSTER_TEST_TIMEOUT 7200)

# The tests that take longest wait for ./check --gates, which runs them in both builds, so that a developer waits for
# eleven minutes (./check): most of them wait for minutes, or compute for half of one.
set(MUSTER_LONG_TESTS
    sim_faults_all sim_mutants t_commands t_cross t_cuts t_date t_ec2 t_failover t_kube_offers t_kube_services t_leaders
    t_leaders_kube t_pull t_redis_lost t_sim_fleet t_two_clouds)
# These only under the sanitizers, where they compute for as long; the release build has them in ./check. sim_faults
# (32 s of processor time there) and t_store_kube (20 s) were the two longest left.
set(MUSTER_LONG_CHECKED_TESTS
    sim_faults t_abuse t_arch t_cloud_exec t_control_faults t_controller t_encoder t_generate t_legs_draft t_legs_real
    t_llama t_model_command t_plan_command t_reasoning_tokens t_serve_draft t_serve_fleet t_sim_worlds t_spot t_store_kube
    t_web_azure t_web_ec2 t_web_hetzner t_web_lambda t_web_runpod t_web_vast)
# Tests of a quarter of a minute and more, which start first: the last to end is then a short one.
set(MUSTER_EARLY_TESTS
    t_abuse t_clock_fleet t_cloud_exec t_control_faults t_controller t_drain t_edge t_fleet t_generate
    t_hung t_legs_real t_live t_llama t_plan_command t_poison t_predict_engine t_predict t_resolver t_restart
    t_rows t_serve_life t_sim_worlds t_simulate t_mix t_spot t_store_kube
    t_store_redis t_store_redis_tls t_store_redis_url t_up)
# Of the long ones, those of three to five minutes: begun last, each would hold up the end alone.
set(MUSTER_LONGEST_TESTS sim_faults_all sim_mutants t_cross t_ec2 t_image_twice t_two_clouds)
function(muster_test_properties name)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${MUSTER_TEST_TIMEOUT} SKIP_RETURN_CODE 77)
    if(name IN_LIST MUSTER_EARLY_TESTS)
        set_tests_properties(${name} PROPERTIES COST 15)
    endif()
    if(name IN_LIST MUSTER_LONG_TESTS OR (MUSTER_SANITIZE AND name IN_LIST MUSTER_LONG_CHECKED_TESTS))
        set_tests_properties(${name} PROPERTIES LABELS long COST 60)
    endif()
    if(name IN_LIST MUSTER_LONGEST_TESTS)
        set_tests_properties(${name} PROPERTIES COST 250)
    endif()
endfunction()

# muster_shared_objects(ret DEPENDS SOURCE...): files that several tests share are compiled once, as objects, by the first
# test that names one; each of forty tests compiled its own, which took 40 s of processor time in the two builds. A file
# outside tests/, which a test builds in a way of its own, stays a source. ret: what to give to target_sources.
function(muster_shared_objects ret depends)
    set(all)
    foreach(source ${ARGN})
        get_filename_component(path ${source} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
        file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${path})
        if(NOT path MATCHES "^tests/")
            list(APPEND all ${source})
            continue()
        endif()
        string(MAKE_C_IDENTIFIER shared_${path} shared)
        if(NOT TARGET ${shared})
            add_library(${shared} OBJECT ${CMAKE_SOURCE_DIR}/${path})
            target_link_libraries(${shared} PRIVATE ${depends})
            target_compile_options(${shared} PRIVATE -Wno-missing-prototypes)
        endif()
        list(APPEND all $<TARGET_OBJECTS:${shared}>)
    endforeach()
    set(${ret} ${all} PARENT_SCOPE)
endfunction()

# muster_unit(t_name [SOURCES a.c] DEPENDS layer...): one cmocka program a file, one ctest entry. SOURCES are shared with
# other tests and see none of the program's own definitions.
function(muster_unit name)
    cmake_parse_arguments(U "" "" "SOURCES;DEPENDS" ${ARGN})
    muster_shared_objects(shared "${U_DEPENDS};PkgConfig::CMOCKA" ${U_SOURCES})
    add_executable(${name} ${name}.c ${shared})
    target_link_libraries(${name} PRIVATE ${U_DEPENDS} PkgConfig::CMOCKA)
    target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    muster_test_properties(${name})
endfunction()

# muster_fuzz(f_name [SOURCES a.c] [WRAP function...] [ONLY file... OF layer] DEPENDS layer...): a libFuzzer target with
# clang and MUSTER_FUZZ; otherwise a program that runs the files of its corpus once, so that every check
# replays every seed. Calls of the functions under WRAP go to the target's own __wrap_FUNCTION.
#
# ONLY names the files, from the root, that the target needs of a large layer. clang takes half a second of processor time
# for a file with all counters and checks; whole layers for the sake of 22 files were 88 others. The replay links the layer.
set(MUSTER_FUZZ_WRAPS)
foreach(bytes 1 2 4 8)
    list(APPEND MUSTER_FUZZ_WRAPS __sanitizer_cov_trace_cmp${bytes}
         __sanitizer_cov_trace_const_cmp${bytes})
endforeach()
function(muster_fuzz name)
    cmake_parse_arguments(F "" "OF" "SOURCES;WRAP;ONLY;DEPENDS" ${ARGN})
    if(MUSTER_FUZZ)
        list(TRANSFORM F_ONLY PREPEND ${CMAKE_SOURCE_DIR}/)
        add_executable(${name} ${name}.c harness.c ${F_SOURCES} ${F_ONLY})
        target_compile_definitions(${name} PRIVATE MUSTER_FUZZ=1)
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        list(APPEND F_WRAP ${MUSTER_FUZZ_WRAPS})
        set_property(GLOBAL APPEND PROPERTY MUSTER_FUZZ_TARGETS ${name})
    else()
        list(PREPEND F_DEPENDS ${F_OF})
        muster_shared_objects(shared "${F_DEPENDS}" harness.c replay.c ${F_SOURCES})
        add_executable(${name} ${name}.c ${shared})
        add_test(NAME ${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name}
                 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
        set_tests_properties(${name} PROPERTIES TIMEOUT ${MUSTER_TEST_TIMEOUT})
    endif()
    list(TRANSFORM F_WRAP PREPEND -Wl,--wrap=)
    target_link_options(${name} PRIVATE ${F_WRAP})
    target_link_libraries(${name} PRIVATE ${F_DEPENDS})
    target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
endfunction()
