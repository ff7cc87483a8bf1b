// What the compiled modules share: arrays of Python as spans, errors of Python as exceptions, work without the GIL.
//
// They use CPython's stable ABI of 3.11 only, so one build serves every later Python.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace caplore {

// Which functions there are and what they take. Higher by one wherever that changes, here and in native.py: a module
// built from other sources is then not called.
constexpr long INTERFACE = 1;

// Thrown where a Python error is already set.
struct PythonError : std::exception {};

// A reference to an object of Python that is ours, and is given back.
using Owned = std::unique_ptr<PyObject, decltype(&Py_DecRef)>;

// What a call of Python made; where it made nothing, its error is set.
inline Owned owned(PyObject* made) {
  if (made == nullptr) throw PythonError();
  return Owned(made, &Py_DecRef);
}

// A contiguous array of T, owned by Python; anything with the buffer protocol whose items have T's size.
template <typename T>
class Array {
 public:
  explicit Array(PyObject* object, bool writable = false) {
    const int flags = PyBUF_ND | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, &view_, flags) != 0) throw PythonError();
    if (view_.itemsize != static_cast<Py_ssize_t>(sizeof(T))) {
      const auto found = view_.itemsize;
      PyBuffer_Release(&view_);
      throw std::invalid_argument("an array has items of " + std::to_string(found) + " bytes where " +
                                  std::to_string(sizeof(T)) + " are needed");
    }
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { PyBuffer_Release(&view_); }

  T* data() const { return static_cast<T*>(view_.buf); }
  int64_t size() const { return view_.len / static_cast<int64_t>(sizeof(T)); }
  T& operator[](int64_t i) const { return data()[i]; }
  T* begin() const { return data(); }
  T* end() const { return data() + size(); }

 private:
  Py_buffer view_;
};

// The GIL again. While the interpreter goes down it is not to be had: Python before 3.14 unwinds the thread instead,
// and destructors that need Python would run without it. The thread sleeps until the process ends, as from 3.14 on.
inline void take_gil(PyThreadState* state) {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

// While one lives other Python threads run, and nothing of Python may be touched.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { take_gil(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // With it for a moment, in the thread that gave it up: what `ask` answers. It must not throw.
  template <typename Ask>
  auto with_gil(Ask ask) {
    take_gil(state_);
    const auto answer = ask();
    state_ = PyEval_SaveThread();
    return answer;
  }

 private:
  PyThreadState* state_;
};

// New bytes with the contents of a vector: what numpy.frombuffer reads.
template <typename T>
PyObject* bytes_of(const std::vector<T>& values) {
  PyObject* made = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                             static_cast<Py_ssize_t>(values.size() * sizeof(T)));
  if (made == nullptr) throw PythonError();
  return made;
}

// Run the body of a function that Python calls; C++ exceptions become Python's.
template <typename Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return nullptr;
  }
}

// A module of these functions that says its interface.
inline PyObject* module_of(PyModuleDef& definition) {
  PyObject* made = PyModule_Create(&definition);
  if (made == nullptr || PyModule_AddIntConstant(made, "INTERFACE", INTERFACE) == 0) return made;
  Py_DecRef(made);
  return nullptr;
}

}  // namespace caplore
