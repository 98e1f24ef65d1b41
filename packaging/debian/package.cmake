# package.cmake - describes the Debian package to CPack. packaging/debian/build.sh builds it reproducibly; `cpack -G DEB`
# in any build folder packs what is built there.
set(maintainer "Muster maintainers <maintainers@muster.invalid>")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME muster)
set(CPACK_PACKAGE_VENDOR "Muster")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${maintainer}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "serves language models on a fleet that grows and shrinks")
set(CPACK_PACKAGE_DESCRIPTION
"Muster serves language models behind OpenAI's API. One binary holds a router,
a controller that buys and returns instances, agents that supervise them, and
an engine with paged KV and continuous batching.
.
The package brings systemd units, which are neither enabled nor started, a
configuration that serves a small shipped model, and a simulator.")
set(CPACK_STRIP_FILES ON)
# Paths in the files are those of the installed system, so the prefix stays /usr and DESTDIR takes the files.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/cpack.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "passwd")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
    ${CMAKE_CURRENT_LIST_DIR}/conffiles ${CMAKE_CURRENT_LIST_DIR}/postinst ${CMAKE_CURRENT_LIST_DIR}/prerm
    ${CMAKE_CURRENT_LIST_DIR}/postrm)

# The packaging's own changelog. TIMESTAMP takes SOURCE_DATE_EPOCH, so that two builds are equal.
string(TIMESTAMP when "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${made}/debian-changelog
"muster (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Packaged from release ${PROJECT_VERSION}; changelog.gz tells what is new.

 -- ${maintainer}  ${when}
")
include(CPack)
