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

# muster_embed_all(TARGET FUNCTION HEADER FOLDER ENDING): the folder's files *.ENDING in order of
# their names, one after another, each followed by a line `---`, as `struct str FUNCTION(void)`.
function(muster_embed_all target function header folder ending)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${function}.c)
    file(GLOB files CONFIGURE_DEPENDS ${folder}/*.${ending})
    add_custom_command(
        OUTPUT ${out}
        COMMAND ${CMAKE_COMMAND} -DFUNCTION=${function} -DHEADER=${header} -DFOLDER=${folder}
                -DENDING=${ending} -DOUT=${out} -P ${CMAKE_SOURCE_DIR}/cmake/embed_file.cmake
        DEPENDS ${files} ${CMAKE_SOURCE_DIR}/cmake/embed_file.cmake
        VERBATIM)
    target_sources(${target} PRIVATE ${out})
endfunction()
