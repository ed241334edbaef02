# link_torch_release(<target> <folder>): the headers of a torch that is not installed, and the names
# of its libraries. The loader finds those in the process, which has loaded torch before; so what is
# linked against here is empty, and the symbols stay open.
file(WRITE "${CMAKE_BINARY_DIR}/empty.cpp" "")
foreach(name torch_cpu c10)
  add_library(${name}_name SHARED "${CMAKE_BINARY_DIR}/empty.cpp")
  set_target_properties(${name}_name PROPERTIES OUTPUT_NAME ${name}
                        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/torch_names")
endforeach()

function(link_torch_release target folder)
  target_include_directories(${target} SYSTEM PRIVATE
                             "${folder}/include" "${folder}/include/torch/csrc/api/include")
  target_compile_options(${target} PRIVATE "-ffile-prefix-map=${folder}=torch")
  target_link_options(${target} PRIVATE LINKER:--no-as-needed)
  target_link_libraries(${target} PRIVATE torch_cpu_name c10_name)
endfunction()
