# cmake --install: the program, the engine as static libraries with its public headers, and a CMake package, so that another
# project says find_package(zipage) and links zipage::zipage. Nothing in it names a path of this machine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The rooms that the engine is made of.
set(engine_rooms options base tensor tokenizer blocks weights backend backend_cpu backend_registry sampling schedule kvcache
                 model_families model compress engine)
list(TRANSFORM engine_rooms PREPEND zipage_)

add_library(zipage_sdk INTERFACE)
add_library(zipage::zipage ALIAS zipage_sdk)
target_link_libraries(zipage_sdk INTERFACE zipage_engine)
target_compile_features(zipage_sdk INTERFACE cxx_std_20)
set_target_properties(zipage_sdk PROPERTIES EXPORT_NAME zipage)

install(TARGETS zipage_sdk ${engine_rooms} EXPORT zipageTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/zipage" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        COMPONENT development FILES_MATCHING PATTERN "*.h")
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/zipage")
install(EXPORT zipageTargets NAMESPACE zipage:: DESTINATION "${package_folder}" COMPONENT development)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/zipageConfig.cmake.in" "${PROJECT_BINARY_DIR}/zipageConfig.cmake"
                              INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/zipageConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/zipageConfig.cmake" "${PROJECT_BINARY_DIR}/zipageConfigVersion.cmake"
        DESTINATION "${package_folder}" COMPONENT development)

install(TARGETS zipage RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
if(ZIPAGE_CUDA)
  # Found by the program in ../lib, and by others beside them or where the loader looks.
  install(TARGETS zipage_cuda LIBRARY DESTINATION lib COMPONENT runtime OPTIONAL)
  set_target_properties(zipage_cuda PROPERTIES INSTALL_RPATH "${CUDAToolkit_LIBRARY_DIR}")
endif()
