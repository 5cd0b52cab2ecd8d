/* What quick_call.py does, in C: from a dict of numpy arrays to the entry of a program and back to a dict of results.

   Call(ports, inputs, entry, words, arena, owner, take_arena, give_arena, new_block, check, fault)
     ports: (name, dtype, shape, k, bytes) per array, `inputs` of them first, then the results; word k of the entry is its address
     words: those of the entry as bytes, the fixed ones filled in; arena: its bytes, or None
   call(given) -> dict of results; None when an array is missing, too many, of another shape, or not to be read in place. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

enum { ALIGNMENT = 64, PAGE = 4096, LARGE = 16 * PAGE, KEPT = 2, ARENA = 2, MOST_AXES = 32 };

typedef struct {
  PyObject* name;
  PyArray_Descr* dtype;
  int axes;
  npy_intp shape[MOST_AXES];
  Py_ssize_t word;
  Py_ssize_t bytes;
  PyObject* kept[KEPT]; /* of a result: blocks of bytes, the one that waited longest first */
} Port;

typedef struct {
  PyObject_HEAD
  vectorcallfunc call;
  Py_ssize_t inputs, ports, words;
  Port* port;
  uint64_t* block;
  int64_t (*entry)(const uint64_t*);
  PyObject *arena, *owner, *take_arena, *give_arena, *new_block, *check, *fault;
} Call;

/* Where in a block what it is for begins, as `start_in` of arrays.py says. */
static uint64_t aligned(PyObject* block) {
  const uint64_t at = (uint64_t)(uintptr_t)PyArray_DATA((PyArrayObject*)block);
  if (PyArray_NBYTES((PyArrayObject*)block) >= LARGE + PAGE) return at + (PAGE / 2 - at) % PAGE;
  return (at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The address of an input that kernels read where it lies, else 0. */
static int address_of(const Port* p, PyObject* given, uint64_t* out) {
  PyArrayObject* a = (PyArrayObject*)given;
  if (!PyArray_CheckExact(given) || PyArray_DESCR(a) != p->dtype || PyArray_NDIM(a) != p->axes) return 0;
  if (!PyArray_ISCARRAY_RO(a) || memcmp(PyArray_DIMS(a), p->shape, (size_t)p->axes * sizeof(npy_intp))) return 0;
  *out = (uint64_t)(uintptr_t)PyArray_DATA(a);
  return 1;
}

/* A new array over a kept block that no earlier result lies on, or over a new one; its address in `out`. */
static PyObject* new_result(Call* c, Port* p, uint64_t* out) {
  PyObject* block = NULL;
  for (int k = 0; k < KEPT && block == NULL; k++) {
    if (p->kept[k] != NULL && Py_REFCNT(p->kept[k]) == 1) {
      block = p->kept[k];
      memmove(p->kept + k, p->kept + k + 1, (size_t)(KEPT - 1 - k) * sizeof(PyObject*));
      p->kept[KEPT - 1] = NULL;
    }
  }
  if (block == NULL) {
    PyObject* bytes = PyLong_FromSsize_t(p->bytes);
    block = bytes == NULL ? NULL : PyObject_CallOneArg(c->new_block, bytes);
    Py_XDECREF(bytes);
    if (block == NULL) return NULL;
  }
  *out = aligned(block);
  Py_INCREF(p->dtype);
  PyObject* made = PyArray_NewFromDescr(&PyArray_Type, p->dtype, p->axes, p->shape, NULL, (void*)(uintptr_t)*out, NPY_ARRAY_CARRAY, NULL);
  if (made == NULL || PyArray_SetBaseObject((PyArrayObject*)made, Py_NewRef(block)) < 0) {
    Py_XDECREF(made);
    Py_DECREF(block);
    return NULL;
  }
  int k = 0;
  while (k < KEPT && p->kept[k] != NULL) k++;
  if (k == KEPT) {
    Py_DECREF(p->kept[0]);
    memmove(p->kept, p->kept + 1, (KEPT - 1) * sizeof(PyObject*));
    k = KEPT - 1;
  }
  p->kept[k] = block;
  return made;
}

static PyObject* make_results(Call* c, uint64_t* words) {
  PyObject* made = PyDict_New();
  for (Py_ssize_t i = c->inputs; made != NULL && i < c->ports; i++) {
    PyObject* array = new_result(c, c->port + i, words + c->port[i].word);
    if (array == NULL || PyDict_SetItem(made, c->port[i].name, array) < 0) Py_CLEAR(made);
    Py_XDECREF(array);
  }
  return made;
}

/* Runs the entry in memory for what lies between the kernels. -1 with an exception, else 0. */
static int run(Call* c, uint64_t* words) {
  PyObject* arena = NULL;
  if (c->arena != Py_None) {
    arena = PyObject_CallOneArg(c->take_arena, c->arena);
    if (arena == NULL) return -1;
    words[ARENA] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(arena, 1));
  }
  int64_t code;
  Py_BEGIN_ALLOW_THREADS
  code = c->entry(words);
  Py_END_ALLOW_THREADS
  if (arena != NULL) {
    PyObject* done = PyObject_CallObject(c->give_arena, arena);
    Py_DECREF(arena);
    if (done == NULL) return -1;
    Py_DECREF(done);
  }
  if (code == 0) return 0;
  PyObject* raised = PyObject_CallFunction(c->fault, "L", (long long)code);
  if (raised != NULL) PyErr_SetObject((PyObject*)Py_TYPE(raised), raised);
  Py_XDECREF(raised);
  return -1;
}

static PyObject* call(PyObject* self, PyObject* const* arguments, size_t count, PyObject* names) {
  Call* c = (Call*)self;
  uint64_t few[64], *words = few;
  PyObject* some[64], **held = some; /* the inputs: without the GIL another thread may take them out of `given` */
  if (PyVectorcall_NARGS(count) != 1 || names != NULL) {
    PyErr_SetString(PyExc_TypeError, "one dict of arrays is taken");
    return NULL;
  }
  PyObject* given = arguments[0];
  if (!PyDict_CheckExact(given) || PyDict_GET_SIZE(given) != c->inputs) Py_RETURN_NONE;
  if (c->words > (Py_ssize_t)(sizeof few / sizeof *few)) {
    words = PyMem_Malloc((size_t)c->words * sizeof *words);
    held = PyMem_Malloc((size_t)c->words * sizeof *held);
    if (words == NULL || held == NULL) {
      PyMem_Free(words);
      PyMem_Free(held);
      return PyErr_NoMemory();
    }
  }
  memcpy(words, c->block, (size_t)c->words * sizeof *words);
  PyObject* made = NULL;
  Py_ssize_t i = 0;
  for (; i < c->inputs; i++) {
    PyObject* array = PyDict_GetItemWithError(given, c->port[i].name);
    if (array == NULL || !address_of(c->port + i, array, words + c->port[i].word)) break;
    held[i] = Py_NewRef(array);
  }
  Py_ssize_t count_held = i;
  if (i < c->inputs) {
    if (!PyErr_Occurred()) made = Py_NewRef(Py_None);
  } else {
    PyObject* enough = c->check == Py_None ? Py_NewRef(Py_None) : PyObject_CallNoArgs(c->check);
    if (enough != NULL && (made = make_results(c, words)) != NULL && run(c, words) < 0) Py_CLEAR(made);
    Py_XDECREF(enough);
  }
  while (count_held > 0) Py_DECREF(held[--count_held]);
  if (words != few) {
    PyMem_Free(words);
    PyMem_Free(held);
  }
  return made;
}

static void dealloc(PyObject* self) {
  Call* c = (Call*)self;
  for (Py_ssize_t i = 0; c->port != NULL && i < c->ports; i++) {
    Py_XDECREF(c->port[i].name);
    Py_XDECREF(c->port[i].dtype);
    for (int k = 0; k < KEPT; k++) Py_XDECREF(c->port[i].kept[k]);
  }
  PyMem_Free(c->port);
  PyMem_Free(c->block);
  Py_XDECREF(c->arena);
  Py_XDECREF(c->owner);
  Py_XDECREF(c->take_arena);
  Py_XDECREF(c->give_arena);
  Py_XDECREF(c->new_block);
  Py_XDECREF(c->check);
  Py_XDECREF(c->fault);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

static int read_port(Port* p, PyObject* item, Py_ssize_t words) {
  PyObject *dtype, *shape;
  if (!PyArg_ParseTuple(item, "UOO!nn", &p->name, &dtype, &PyTuple_Type, &shape, &p->word, &p->bytes)) return -1;
  if (!PyArray_DescrCheck(dtype) || PyTuple_GET_SIZE(shape) > MOST_AXES || p->word < 0 || p->word >= words) {
    p->name = NULL;
    PyErr_SetString(PyExc_ValueError, "no port");
    return -1;
  }
  Py_INCREF(p->name);
  p->dtype = (PyArray_Descr*)Py_NewRef(dtype);
  p->axes = (int)PyTuple_GET_SIZE(shape);
  for (int k = 0; k < p->axes; k++) p->shape[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k));
  return PyErr_Occurred() ? -1 : 0;
}

static PyObject* new_call(PyTypeObject* type, PyObject* arguments, PyObject* names) {
  PyObject* ports;
  Py_buffer words;
  unsigned long long entry;
  Py_ssize_t inputs;
  PyObject *arena, *owner, *take, *give, *block, *check, *fault;
  if (names != NULL && PyDict_GET_SIZE(names)) return PyErr_Format(PyExc_TypeError, "no names are taken");
  if (!PyArg_ParseTuple(arguments, "O!nKy*OOOOOOO", &PyTuple_Type, &ports, &inputs, &entry, &words, &arena, &owner, &take, &give, &block, &check, &fault))
    return NULL;
  Call* c = (Call*)type->tp_alloc(type, 0);
  if (c != NULL) {
    c->call = call;
    c->inputs = inputs;
    c->words = words.len / (Py_ssize_t)sizeof(uint64_t);
    c->entry = (int64_t (*)(const uint64_t*))(uintptr_t)entry;
    c->arena = Py_NewRef(arena);
    c->owner = Py_NewRef(owner);
    c->take_arena = Py_NewRef(take);
    c->give_arena = Py_NewRef(give);
    c->new_block = Py_NewRef(block);
    c->check = Py_NewRef(check);
    c->fault = Py_NewRef(fault);
    c->ports = PyTuple_GET_SIZE(ports);
    c->port = PyMem_Calloc((size_t)c->ports + 1, sizeof(Port));
    c->block = PyMem_Malloc((size_t)words.len + 1);
    if (c->port == NULL || c->block == NULL || inputs > c->ports) {
      PyErr_NoMemory();
      Py_CLEAR(c);
    } else {
      memcpy(c->block, words.buf, (size_t)words.len);
    }
    for (Py_ssize_t i = 0; c != NULL && i < c->ports; i++)
      if (read_port(c->port + i, PyTuple_GET_ITEM(ports, i), c->words) < 0) Py_CLEAR(c);
  }
  PyBuffer_Release(&words);
  return (PyObject*)c;
}

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Call, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_new, new_call}, {Py_tp_dealloc, dealloc}, {Py_tp_members, members}, {Py_tp_call, PyVectorcall_Call}, {0, NULL},
};
static PyType_Spec spec = {"tatami_short_call.Call", sizeof(Call), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, slots};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "tatami_short_call", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_tatami_short_call(void) {
  import_array();
  PyObject* made = PyModule_Create(&module);
  PyObject* type = made == NULL ? NULL : PyType_FromSpec(&spec);
  if (type == NULL || PyModule_AddObjectRef(made, "Call", type) < 0) Py_CLEAR(made);
  Py_XDECREF(type);
  return made;
}
