# cpack.cmake - tells install.cmake that the files go into a Debian package. CPack reads it before it installs.
set(ENV{MUSTER_DEBIAN} ON)
