# find_in_python(<torch|nvcc|cutlass|pybind11> <variable>): the folder or file that a Python package
# brings, or empty. The second try (-I) steps out of pip's build isolation.
function(find_in_python what variable)
  foreach(isolation "" "-I")
    execute_process(
      COMMAND "${Python_EXECUTABLE}" ${isolation}
              "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/find_in_python.py" ${what}
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(found)
      break()
    endif()
  endforeach()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()
