# install.cmake - installs the files that name paths of the installation, and those whose place depends on the
# prefix. CMake runs it at `cmake --install`, when the prefix is known.
#
# Paths in the files are those without DESTDIR. /usr has its configuration in /etc, another prefix below itself. The
# state is below /var/lib in any case: there systemd makes StateDirectory.
cmake_policy(VERSION 3.22)
set(bindir ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR})
set(datadir ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/muster)
set(docdir ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DOCDIR})
set(statedir /var/lib/muster)
set(debian "$ENV{MUSTER_DEBIAN}") # the layout of Debian's policy: debian/cpack.cmake sets it
set(sysconfdir ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_SYSCONFDIR})
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
    set(sysconfdir /etc)
endif()

# replace(FROM TO): replaces FROM in `config`. It must be there: the shipped file may have changed.
function(replace from to)
    string(FIND "${config}" "${from}" at)
    if(at EQUAL -1)
        message(FATAL_ERROR "install.cmake: muster.yaml does not hold '${from}' any more; mend this script")
    endif()
    string(REPLACE "${from}" "${to}" config "${config}")
    set(config "${config}" PARENT_SCOPE)
endfunction()

# put(NAME TEXT FOLDER): installs a file of that text.
function(put name text folder)
    file(WRITE ${made}/${name} "${text}")
    file(INSTALL ${made}/${name} DESTINATION ${folder})
endfunction()

# ---- the configuration: an example for any folder, and the one of the services ----

file(READ ${CMAKE_SOURCE_DIR}/muster.yaml config)
replace("models/muster-tiny-q8_0.gguf" "${datadir}/models/muster-tiny-q8_0.gguf")
put(example/muster.yaml "${config}" ${datadir})
replace("muster.yaml - a fleet on this machine:" "muster.yaml - the fleet of the services on this machine:")
replace("#     muster up -f muster.yaml            start it
#     muster status                       look at it
#     muster chat \"Tell me a story.\"      talk to it
#     muster down                         drain and stop it
" "#     systemctl start muster-controller muster-router
#     muster status --state ${statedir}   look at it, as root or the user muster
#     muster chat \"Tell me a story.\"      talk to it
")
replace("  state: muster-state " "  state: ${statedir} ")
replace("  listen: 127.0.0.1:8080
" "  listen: 127.0.0.1:8080
  controller: 127.0.0.1:8090
  secret_file: ${statedir}/secret
")
put(etc/muster.yaml "${config}" ${sysconfdir}/muster)

# ---- systemd ----

file(READ ${CMAKE_SOURCE_DIR}/packaging/systemd/hardening.conf hardening)
string(REGEX REPLACE "\n$" "" hardening "${hardening}")
foreach(unit muster-controller.service muster-router.service muster-agent@.service muster-engine@.service)
    file(READ ${CMAKE_SOURCE_DIR}/packaging/systemd/${unit} text)
    foreach(name hardening bindir sysconfdir statedir)
        string(REPLACE "@${name}@" "${${name}}" text "${text}")
    endforeach()
    put(systemd/${unit} "${text}" ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
endforeach()
file(READ ${CMAKE_SOURCE_DIR}/packaging/systemd/muster.conf text)
string(REPLACE "@statedir@" "${statedir}" text "${text}")
put(sysusers/muster.conf "${text}" ${CMAKE_INSTALL_PREFIX}/lib/sysusers.d)

# ---- manual pages and zsh, which Debian keeps elsewhere and packed ----

# pack(FROM NAME FOLDER): installs FOLDER/NAME.gz without a time or a name in it.
function(pack from name folder)
    file(MAKE_DIRECTORY ${made}/packed)
    execute_process(COMMAND gzip -9 -n -c INPUT_FILE ${from} OUTPUT_FILE ${made}/packed/${name}.gz
                    COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL ${made}/packed/${name}.gz DESTINATION ${folder})
endfunction()

file(GLOB pages ${generated}/man/*)
if(NOT pages)
    message(FATAL_ERROR "install.cmake: no manual pages; build the target `generated_docs` first")
endif()
foreach(page ${pages})
    get_filename_component(name ${page} NAME)
    string(REGEX REPLACE ".*\\." "man" section ${name})
    set(folder ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/${section})
    if(debian)
        pack(${page} ${name} ${folder})
    else()
        file(INSTALL ${page} DESTINATION ${folder})
    endif()
endforeach()
set(zsh site-functions)
if(debian)
    set(zsh vendor-completions)
endif()
file(INSTALL ${generated}/completion/muster.zsh RENAME _muster
     DESTINATION ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/${zsh})

# ---- licence and changes ----

if(debian)
    file(INSTALL ${CMAKE_SOURCE_DIR}/packaging/debian/copyright DESTINATION ${docdir})
    pack(${CMAKE_SOURCE_DIR}/CHANGELOG.md changelog ${docdir})
    pack(${made}/debian-changelog changelog.Debian ${docdir})
else()
    file(INSTALL ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/CHANGELOG.md DESTINATION ${docdir})
endif()
