# What `cmake --install` (make install PREFIX=DIR) puts under the prefix.
include(CMakePackageConfigHelpers)

install(TARGETS anabranch EXPORT anabranch_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/anabranch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT anabranch_targets NAMESPACE anabranch::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anabranch)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/anabranch-config.cmake.in
  ${PROJECT_BINARY_DIR}/anabranch-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anabranch)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/anabranch-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/anabranch-config.cmake
              ${PROJECT_BINARY_DIR}/anabranch-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/anabranch)

configure_file(${CMAKE_CURRENT_LIST_DIR}/anabranch.pc.in ${PROJECT_BINARY_DIR}/anabranch.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/anabranch.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
