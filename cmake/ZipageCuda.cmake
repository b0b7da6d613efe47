# The CUDA language and the settings of every .cu file. Included only with ZIPAGE_CUDA.
#
# 80-real and 90a-real: machine code for A100-class and Hopper GPUs; the sm_90a one uses wgmma and the bulk copy
# engine. A developer with one GPU may set ZIPAGE_CUDA_ARCHS to it alone.
set(ZIPAGE_CUDA_ARCHS "80-real;90a-real" CACHE STRING "GPU architectures to compile for")
set(CMAKE_CUDA_ARCHITECTURES "${ZIPAGE_CUDA_ARCHS}")

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "ZIPAGE_CUDA is ON and nvcc was not found: set CUDACXX to its path, or leave ZIPAGE_CUDA off")
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

# Some CMakes of this age do not know the flag of CUDA20.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)

target_compile_options(zipage_options INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wshadow;-lineinfo>>")

# zipage_cuda_program(NAME [LIBS target...]): a test or bench program out of the .cc and .cu files of this folder.
function(zipage_cuda_program name)
  cmake_parse_arguments(PROGRAM "" "" "LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc" "${CMAKE_CURRENT_SOURCE_DIR}/*.cu")
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE zipage_options zipage_cuda CUDA::cudart_static ${PROGRAM_LIBS})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
endfunction()
