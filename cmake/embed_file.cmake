# Writes FILE, or the *.ENDING files of FOLDER, as a C array behind a function; run by muster_embed.
if(FOLDER)
    file(GLOB files ${FOLDER}/*.${ENDING})
    list(SORT files)
    foreach(one ${files})
        file(READ ${one} text HEX)
        string(APPEND hex "${text}2d2d2d0a") # "---", newline
    endforeach()
else()
    file(READ ${FILE} hex HEX)
endif()
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)"
       "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "#include \"${HEADER}\"\n\nstatic const unsigned char bytes[] = {\n${bytes}\n};\n\n"
     "struct str ${FUNCTION}(void)\n{\n    return str_of(bytes, sizeof bytes);\n}\n")
