# Compiler settings and the two functions every room uses: zipage_room and zipage_room_test.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET default)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_package(Threads REQUIRED)
find_program(ZIPAGE_CCACHE ccache)
if(ZIPAGE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ZIPAGE_CCACHE}")
endif()

# -ffp-contract=off: a*b+c is fused only where the source says so, because a row's result in f32
# must not depend on which loop body the compiler chose for it.
add_library(zipage_options INTERFACE)
# BUILD_INTERFACE: none of this is a user's who links the installed libraries.
target_compile_options(zipage_options INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Werror;-ffp-contract=off>>")
target_include_directories(zipage_options INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>"
  "$<INSTALL_INTERFACE:include>")
target_link_libraries(zipage_options INTERFACE Threads::Threads)
if(ZIPAGE_SANITIZE)
  # In instrumented code of Boost.Beast and std::regex GCC warns of what it never does.
  target_compile_options(zipage_options INTERFACE
    "$<BUILD_INTERFACE:$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>>")
  add_compile_options(-fsanitize=${ZIPAGE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ZIPAGE_SANITIZE})
endif()
if(ZIPAGE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# zipage_room(NAME [DEPS room...] [LIBS target...]): one static library out of the .cc files of this
# folder (not of its subfolders). DEPS are other rooms, LIBS third-party targets.
function(zipage_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  if(sources)
    add_library(zipage_${name} STATIC ${sources})
    set(scope PUBLIC)
  else()
    add_library(zipage_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(zipage_${name} ${scope} zipage_options)
  foreach(dep IN LISTS ROOM_DEPS)
    target_link_libraries(zipage_${name} ${scope} zipage_${dep})
  endforeach()
  target_link_libraries(zipage_${name} ${scope} ${ROOM_LIBS})
endfunction()

# zipage_room_test(NAME [DEPS room...] [LIBS target...] [REFERENCE suite...] [SLOW suite...]): one GoogleTest program
# test_NAME out of the .cc files of this folder. Its tests have the label `unit` (fast, no network, no other programs), but
# for those whose names match REFERENCE (they run other implementations, see tests/judges.txt) or SLOW: patterns of
# --gtest_filter, whose tests have the label `reference` or `slow`.
function(zipage_room_test name)
  cmake_parse_arguments(TEST "" "" "DEPS;LIBS;REFERENCE;SLOW" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cc")
  if(NOT sources)
    return()
  endif()
  add_executable(test_${name} ${sources})
  target_link_libraries(test_${name} PRIVATE zipage_options GTest::gmock_main)
  target_include_directories(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  target_compile_definitions(test_${name} PRIVATE ZIPAGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  foreach(dep IN LISTS TEST_DEPS)
    target_link_libraries(test_${name} PRIVATE zipage_${dep})
  endforeach()
  target_link_libraries(test_${name} PRIVATE ${TEST_LIBS})
  add_dependencies(zipage_tests test_${name})
  set(others "")
  foreach(label IN ITEMS REFERENCE SLOW)
    if(TEST_${label})
      string(TOLOWER ${label} word)
      list(JOIN TEST_${label} ":" patterns)
      zipage_discover_tests(test_${name} "${patterns}" "${word}" 1800)
      string(APPEND others ":${patterns}")
    endif()
  endforeach()
  string(REGEX REPLACE "^:" "-" others "${others}")
  zipage_discover_tests(test_${name} "${others}" unit 900)
endfunction()

function(zipage_discover_tests target filter label timeout)
  gtest_discover_tests(${target} TEST_FILTER "${filter}" DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${timeout} LABELS "${label}")
endfunction()
