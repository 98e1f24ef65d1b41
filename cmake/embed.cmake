# muster_embed(TARGET FUNCTION HEADER FILE): compiles FILE in as `struct str FUNCTION(void)`, which
# HEADER declares.
function(muster_embed target function header file)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${function}.c)
    add_custom_command(
        OUTPUT ${out}
        COMMAND ${CMAKE_COMMAND} -DFUNCTION=${function} -DHEADER=${header} -DFILE=${file}
                -DOUT=${out} -P ${CMAKE_SOURCE_DIR}/cmake/embed_file.cmake
        DEPENDS ${file} ${CMAKE_SOURCE_DIR}/cmake/embed_file.cmake
        VERBATIM)
    target_sources(${target} PRIVATE ${out})
endfunction()
