# Debian packages, by `cpack --preset package`: headrace (the server and its systemd service) and headrace-dev (the client library).
set(packaged "${CMAKE_CURRENT_LIST_DIR}/debian")
# Not part of cmake --install: the unit names /usr/bin.
install(FILES "${headrace_SOURCE_DIR}/configs/systemd/headrace.service" DESTINATION lib/systemd/system COMPONENT service EXCLUDE_FROM_ALL)
install(FILES "${headrace_SOURCE_DIR}/configs/systemd/headrace.yaml" DESTINATION share/doc/headrace/examples COMPONENT service EXCLUDE_FROM_ALL)
install(FILES "${headrace_SOURCE_DIR}/docker/packages.md" DESTINATION share/doc/headrace COMPONENT service EXCLUDE_FROM_ALL)
install(DIRECTORY DESTINATION /etc/headrace COMPONENT service EXCLUDE_FROM_ALL)
# Where each shell looks for the completions of a command.
foreach(completion "bash;bash-completion/completions/headrace" "zsh;zsh/vendor-completions/_headrace"
                   "fish;fish/vendor_completions.d/headrace.fish")
  list(POP_FRONT completion shell)
  get_filename_component(folder "${completion}" DIRECTORY)
  get_filename_component(name "${completion}" NAME)
  set(script "${headrace_BINARY_DIR}/completion.${shell}")
  install(CODE "execute_process(COMMAND \"$<TARGET_FILE:headrace_cli>\" completion ${shell} OUTPUT_FILE \"${script}\" COMMAND_ERROR_IS_FATAL ANY)"
          COMPONENT service EXCLUDE_FROM_ALL)
  install(FILES "${script}" DESTINATION "share/${folder}" RENAME "${name}" COMPONENT service EXCLUDE_FROM_ALL)
endforeach()
foreach(package headrace headrace-dev)
  set(component service)
  if(package STREQUAL headrace-dev)
    set(component development)
  endif()
  install(FILES "${packaged}/copyright" DESTINATION share/doc/${package} COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME headrace)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "data server for machine-learning trainers on images")
set(CPACK_PACKAGE_CONTACT "Headrace's maintainers <maintainers@headrace.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_COMPONENTS_ALL server service development)
set(CPACK_COMPONENT_SERVER_GROUP server)
set(CPACK_COMPONENT_SERVICE_GROUP server)
set(CPACK_COMPONENT_DEVELOPMENT_GROUP development)

set(CPACK_DEBIAN_SERVER_PACKAGE_NAME headrace)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION science)
set(CPACK_DEBIAN_SERVER_DESCRIPTION "The server decodes and augments images once for all trainers of a machine,
which read the batches in shared memory. This package has the server and its
systemd service.")
set(CPACK_DEBIAN_SERVER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS "adduser, ca-certificates")
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA "${packaged}/postinst;${packaged}/prerm;${packaged}/postrm")
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME headrace-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "This package has headers, static libraries and a CMake package for trainers
in C++ that read the batches of a server.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libexpected-dev, libfmt-dev, libzmq3-dev, pkg-config")
include(CPack)
