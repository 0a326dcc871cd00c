# cmake --install: the client library as a CMake package (component development), and headrace::maker (component maker). server/verbs installs the server's binary (component
# server).
include(CMakePackageConfigHelpers)

set(HEADRACE_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/headrace")
set(HEADRACE_WITH_CUDA OFF)
if(TARGET CUDA::cudart_static)
  set(HEADRACE_WITH_CUDA ON)
endif()

set(HEADRACE_INSTALLED headrace_base headrace_ring headrace_wire headrace_client headrace_gpu)

install(TARGETS ${HEADRACE_INSTALLED} EXPORT headraceTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
# Apart, because this library needs those of the server.
if(TARGET headrace_maker)
  install(TARGETS headrace_maker EXPORT headraceMakerTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT maker)
  install(EXPORT headraceMakerTargets NAMESPACE headrace:: DESTINATION "${HEADRACE_PACKAGE_DIR}" COMPONENT maker)
  install(FILES "${headrace_SOURCE_DIR}/clientlib/include/headrace/maker.h"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/headrace" COMPONENT maker)
endif()
install(DIRECTORY "${headrace_SOURCE_DIR}/clientlib/include/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN maker.h EXCLUDE)
install(EXPORT headraceTargets NAMESPACE headrace:: DESTINATION "${HEADRACE_PACKAGE_DIR}" COMPONENT development)
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/headraceConfig.cmake.in"
                              "${CMAKE_CURRENT_BINARY_DIR}/headraceConfig.cmake"
                              INSTALL_DESTINATION "${HEADRACE_PACKAGE_DIR}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/headraceConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/headraceConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/headraceConfigVersion.cmake"
        DESTINATION "${HEADRACE_PACKAGE_DIR}" COMPONENT development)
