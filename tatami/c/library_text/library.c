/* The interface of model.h: checks of what a caller gives, constants, memory of calls, and messages. */
#define _GNU_SOURCE
#include "library.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define API __attribute__((visibility("default")))
#define OF (&tatami_described)
#define MOST_ELEMENTS ((int64_t)1 << 47)
#define SPIN_PAUSES 2000 /* of a worker before it sleeps: some 100 microseconds */
#define HEADER 64        /* bytes before the constants in their file: a word, their number of bytes, their SHA-256 */
#define KEPT_CALLS 8     /* memories of calls that are kept for the next ones */

/* Memory of one call: the sizes that it is planned for, slots, buffers, arena. */
typedef struct call {
    struct call* next;
    int64_t *sizes, *wanted, *slots, *results;
    const int64_t** shapes;
    void** buffers;
    char* arena;
    int64_t arena_bytes;
    int planned;
} call_t;

struct tatami_model {
    tatami_pool* pool;
    unsigned char* mapped;
    void** constants;
    char* made;
    int32_t threads;
    pthread_mutex_t lock;
    call_t* idle;
    int idle_count;
};

/* -- messages -------------------------------------------------------------------------------------- */

static __thread char message[512];

API const char* tatami_model_message(void) { return message; }

__attribute__((format(printf, 2, 3))) static tatami_model_status refuse(tatami_model_status status, const char* format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    return status;
}

static tatami_model_status no_memory(const char* what) { return refuse(TATAMI_MODEL_OUT_OF_MEMORY, "no memory for %s", what); }

tatami_model_status tatami_wrong_size(int32_t input, int32_t axis, int64_t size, int64_t wanted) {
    return refuse(TATAMI_MODEL_BAD_SHAPE, "input %" PRId32 " (%.100s), axis %" PRId32 ": the size is %" PRId64 " where %" PRId64 " is needed",
                  input, OF->inputs[input].name, axis, size, wanted);
}

tatami_model_status tatami_no_size(int32_t input, int32_t axis, int64_t size, const char* wanted) {
    return refuse(TATAMI_MODEL_BAD_SHAPE, "input %" PRId32 " (%.100s), axis %" PRId32 ": the size is %" PRId64 ", which is not %.120s for any size",
                  input, OF->inputs[input].name, axis, size, wanted);
}

tatami_model_status tatami_broken(const char* equation, int64_t left, int64_t right) {
    return refuse(TATAMI_MODEL_BAD_SHAPE, "the sizes break %.300s (%" PRId64 " and %" PRId64 ")", equation, left, right);
}

/* The message of a fault code of compiled code (c/print_entry.py). */
static tatami_model_status fault_message(int64_t fault) {
    int code = (int)(fault & 255);
    int64_t step = fault >> 8;
    if (code == 7) return tatami_broken(OF->equations[step], tatami_sides()[0], tatami_sides()[1]);
    const char* where = step >= 0 && step < OF->step_count ? OF->steps[step] : "the model";
    switch (code) {
    case 1: return refuse(TATAMI_MODEL_BAD_DATA, "%.200s: an index points outside its data", where);
    case 2: return no_memory("the scratch of a kernel");
    case 4: return refuse(TATAMI_MODEL_BAD_DATA, "%.200s: programs call each other more than %d deep", where, TATAMI_MOST_DEPTH);
    case 5: return refuse(TATAMI_MODEL_BAD_DATA, "%.200s: a loop ran another number of times than its results have room for", where);
    case 9: return refuse(TATAMI_MODEL_BAD_DATA, "%.200s: %" PRId64 " is not a size", where, tatami_sides()[0]);
    default: return refuse(TATAMI_MODEL_DEFECT, "%.200s: fault %d", where, code);
    }
}

/* -- what the model is ----------------------------------------------------------------------------- */

API int32_t tatami_model_abi(void) { return TATAMI_MODEL_ABI; }
API int32_t tatami_model_input_count(void) { return OF->input_count; }
API int32_t tatami_model_output_count(void) { return OF->output_count; }
API const tatami_model_port* tatami_model_input(int32_t k) { return k < 0 || k >= OF->input_count ? NULL : OF->inputs + k; }
API const tatami_model_port* tatami_model_output(int32_t k) { return k < 0 || k >= OF->output_count ? NULL : OF->outputs + k; }

/* The name of an instruction set that the library uses and this CPU or system lacks; null: none. */
static const char* missing_instructions(void) {
#if defined(__x86_64__)
    uint32_t r[4] = {0}, state = 0;
    if (__get_cpuid(1, &r[0], &r[1], &r[2], &r[3]) && (r[2] >> 27 & 1)) {
        uint32_t high;
        __asm__ volatile("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
    }
    for (int32_t k = 0; k < OF->cpu_count; k++) {
        const tatami_cpu_bit* b = &OF->cpu[k];
        if (!__get_cpuid_count(b->leaf, b->subleaf, &r[0], &r[1], &r[2], &r[3])) return b->name;
        if (!(r[b->reg] >> b->bit & 1) || (state & b->state) != b->state) return b->name;
    }
#endif
    return NULL;
}

/* -- constants ------------------------------------------------------------------------------------- */

/* The constants' bytes: linked in, or the file mapped. */
static tatami_model_status open_constants(tatami_model* m, const char* path, const unsigned char** bytes) {
    *bytes = OF->linked;
    if (OF->file_bytes == 0 || OF->linked) return TATAMI_MODEL_OK;
    if (!path) return refuse(TATAMI_MODEL_BAD_ARGUMENT, "constants: null, but the model has %" PRId64 " bytes of them", OF->file_bytes);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return refuse(TATAMI_MODEL_BAD_CONSTANTS, "%.300s: cannot be opened", path);
    struct stat about;
    int64_t size = fstat(file, &about) == 0 && S_ISREG(about.st_mode) ? (int64_t)about.st_size : -1;
    void* mapped = size == OF->file_bytes + HEADER ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    close(file);
    if (size != OF->file_bytes + HEADER) {
        return refuse(TATAMI_MODEL_BAD_CONSTANTS, "%.300s: it has %" PRId64 " bytes, not the %" PRId64 " of this model's constants", path, size, OF->file_bytes + HEADER);
    }
    if (mapped == MAP_FAILED) return refuse(TATAMI_MODEL_OUT_OF_MEMORY, "%.300s: cannot be mapped", path);
    m->mapped = mapped;
    if (memcmp(m->mapped, "tatami constants", 16) != 0 || memcmp(m->mapped + 32, OF->digest, 32) != 0) {
        return refuse(TATAMI_MODEL_BAD_CONSTANTS, "%.300s: it holds the constants of another model", path);
    }
    *bytes = m->mapped + HEADER;
    return TATAMI_MODEL_OK;
}

static void* block(int64_t bytes) {
    void* p = NULL;
    return posix_memalign(&p, TATAMI_LINE, (size_t)bytes + TATAMI_LINE) == 0 ? p : NULL;
}

static int64_t lines(int64_t bytes) { return (bytes + TATAMI_LINE - 1) / TATAMI_LINE * TATAMI_LINE; }

/* Run `setup`: `made` gets what it makes for main, `rest` what only it reads. */
static tatami_model_status run_set_up(tatami_model* m, void** buffers, int64_t* slots, char* rest) {
    char* to[2] = {m->made, rest};
    for (int32_t k = 0; k < OF->made_count; k++) {
        const tatami_made* made = &OF->made[k];
        char** from = &to[made->constant < 0];
        buffers[k] = *from;
        if (made->constant >= 0) m->constants[made->constant] = *from;
        *from += lines(made->bytes);
    }
    memcpy(buffers + OF->made_count, m->constants, (size_t)OF->constant_count * sizeof(void*));
    int32_t symbols = OF->programs[OF->setup].symbols;
    int64_t sizes[symbols + 1];
    memcpy(sizes, OF->setup_sizes, (size_t)symbols * sizeof *sizes);
    sizes[symbols] = m->threads;
    int64_t bytes = tatami_plan(OF->setup, sizes, slots);
    char* arena = bytes < 0 ? NULL : block(bytes);
    if (!arena) return no_memory("what is prepared of the constants");
    int64_t fault = OF->set_up(buffers, sizes, slots, arena, m->pool);
    free(arena);
    return fault ? fault_message(fault) : TATAMI_MODEL_OK;
}

static tatami_model_status prepare_constants(tatami_model* m, const unsigned char* bytes) {
    int64_t made = 0, rest = 0;
    for (int32_t k = 0; k < OF->constant_count; k++) {
        if (OF->constants[k].offset >= 0) m->constants[k] = (void*)(uintptr_t)(bytes + OF->constants[k].offset);
    }
    if (OF->setup < 0) return TATAMI_MODEL_OK;
    for (int32_t k = 0; k < OF->made_count; k++) *(OF->made[k].constant < 0 ? &rest : &made) += lines(OF->made[k].bytes);
    m->made = block(made);
    char* unread = block(rest);
    void** buffers = calloc((size_t)(OF->made_count + OF->constant_count) + 1, sizeof *buffers);
    int64_t* slots = calloc((size_t)OF->setup_slots + 1, sizeof *slots);
    tatami_model_status status = no_memory("the constants");
    if (m->made && unread && buffers && slots) status = run_set_up(m, buffers, slots, unread);
    free(slots);
    free(buffers);
    free(unread);
    if (m->mapped) madvise(m->mapped, (size_t)(OF->file_bytes + HEADER), MADV_DONTNEED); /* read again if main needs a part */
    return status;
}

/* -- a model --------------------------------------------------------------------------------------- */

static int32_t usable_processors(void) {
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count < 1 ? 1 : count > 1024 ? 1024 : count;
}

static tatami_model_status start(tatami_model* m, const char* constants, int32_t threads) {
    const unsigned char* bytes = NULL;
    m->threads = threads ? threads : usable_processors();
    m->constants = calloc((size_t)OF->constant_count + 1, sizeof(void*));
    m->pool = m->threads > 1 ? tatami_pool_create(m->threads, SPIN_PAUSES, 0) : NULL;
    if (!m->constants || (m->threads > 1 && !m->pool)) return no_memory("a model");
    tatami_model_status status = open_constants(m, constants, &bytes);
    return status ? status : prepare_constants(m, bytes);
}

API tatami_model_status tatami_model_create(const char* constants, int32_t threads, tatami_model** model) {
    message[0] = 0;
    if (!model) return refuse(TATAMI_MODEL_BAD_ARGUMENT, "model: null, where the new one is to be written");
    *model = NULL;
    if (threads < 0 || threads > 1024) return refuse(TATAMI_MODEL_BAD_ARGUMENT, "threads: %" PRId32 ", not 0 to 1024", threads);
    const char* missing = missing_instructions();
    if (missing) return refuse(TATAMI_MODEL_WRONG_CPU, "this CPU or its system lacks %s, which the library was compiled for", missing);
    tatami_model* m = calloc(1, sizeof *m);
    if (!m) return no_memory("a model");
    pthread_mutex_init(&m->lock, NULL);
    tatami_model_status status = start(m, constants, threads);
    if (status) tatami_model_destroy(m);
    else *model = m;
    return status;
}

static void free_call(call_t* c) {
    if (!c) return;
    free(c->sizes);
    free(c->wanted);
    free(c->slots);
    free(c->results);
    free(c->shapes);
    free(c->buffers);
    free(c->arena);
    free(c);
}

API void tatami_model_destroy(tatami_model* m) {
    if (!m) return;
    for (call_t *c = m->idle, *next; c; c = next) {
        next = c->next;
        free_call(c);
    }
    tatami_pool_destroy(m->pool);
    if (m->mapped) munmap(m->mapped, (size_t)(OF->file_bytes + HEADER));
    free(m->made);
    free(m->constants);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* -- a call ---------------------------------------------------------------------------------------- */

static void* zeros(int64_t count, size_t size) { return calloc((size_t)count + 1, size); }

static call_t* new_call(void) {
    call_t* c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->sizes = zeros(OF->symbols + 1, sizeof *c->sizes);
    c->wanted = zeros(OF->symbols + 1, sizeof *c->wanted);
    c->slots = zeros(OF->main_slots, sizeof *c->slots);
    c->results = zeros(OF->output_axes, sizeof *c->results);
    c->shapes = zeros(OF->input_count, sizeof *c->shapes);
    c->buffers = zeros(OF->input_count + OF->output_count + OF->constant_count, sizeof *c->buffers);
    if (c->sizes && c->wanted && c->slots && c->results && c->shapes && c->buffers) return c;
    free_call(c);
    return NULL;
}

static call_t* take_call(tatami_model* m) {
    pthread_mutex_lock(&m->lock);
    call_t* c = m->idle;
    if (c) m->idle = c->next, m->idle_count--;
    pthread_mutex_unlock(&m->lock);
    return c ? c : new_call();
}

static void give_call(tatami_model* m, call_t* c) {
    pthread_mutex_lock(&m->lock);
    int kept = m->idle_count < KEPT_CALLS;
    if (kept) c->next = m->idle, m->idle = c, m->idle_count++;
    pthread_mutex_unlock(&m->lock);
    if (!kept) free_call(c);
}

/* Bytes of an array; -1 for sizes that no array has. */
static int64_t array_bytes(const tatami_model_port* port, const int64_t* shape) {
    int64_t whole = 1, elements = 1;
    for (int32_t a = 0; a < port->rank; a++) {
        if (shape[a] < 0 || (shape[a] > 0 && whole > MOST_ELEMENTS / shape[a])) return -1;
        if (shape[a] > 0) whole *= shape[a];
        else elements = 0;
    }
    return elements ? whole * port->element_bytes : 0;
}

/* Sizes of the call in `wanted` and shapes of the results, from the shapes of the inputs. */
static tatami_model_status bind(call_t* c, const tatami_model_buffer* inputs) {
    for (int32_t k = 0; k < OF->input_count; k++) {
        const tatami_model_port* port = OF->inputs + k;
        c->shapes[k] = inputs[k].shape ? inputs[k].shape : port->shape;
        if (array_bytes(port, c->shapes[k]) < 0) {
            const char* why = inputs[k].shape ? "its shape has a negative size, or too many elements" : "its shape is null, and sizes of it are open";
            return refuse(TATAMI_MODEL_BAD_SHAPE, "input %" PRId32 " (%.100s): %s", k, port->name, why);
        }
    }
    tatami_model_status status = OF->bind(c->shapes, c->wanted);
    if (!status) OF->results(c->wanted, c->results);
    return status;
}

static tatami_model_status check_buffer(const char* what, int32_t k, const tatami_model_port* port, const tatami_model_buffer* b, int64_t bytes, int exact) {
    if (bytes < 0) return refuse(TATAMI_MODEL_BAD_SHAPE, "%s %" PRId32 " (%.100s): it has more elements than a memory", what, k, port->name);
    if (exact ? b->bytes != bytes : b->bytes < bytes) {
        return refuse(TATAMI_MODEL_BAD_ARGUMENT, "%s %" PRId32 " (%.100s): the buffer has %" PRId64 " bytes, %" PRId64 " are needed", what, k, port->name, b->bytes, bytes);
    }
    if (bytes > 0 && !b->data) return refuse(TATAMI_MODEL_BAD_ARGUMENT, "%s %" PRId32 " (%.100s): its data is null", what, k, port->name);
    if (bytes > 0 && (uintptr_t)b->data % (uintptr_t)port->alignment != 0) {
        return refuse(TATAMI_MODEL_BAD_ARGUMENT, "%s %" PRId32 " (%.100s): its address is not a multiple of %" PRId32, what, k, port->name, port->alignment);
    }
    return TATAMI_MODEL_OK;
}

static int share(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && x < y + (uintptr_t)b_bytes && y < x + (uintptr_t)a_bytes;
}

/* True if buffer `k`, which is written, shares memory with an input other than `k` is itself, or with another output. */
static int shares(const tatami_model_buffer* written, const tatami_model_buffer* inputs, const tatami_model_buffer* outputs) {
    for (int32_t j = 0; j < OF->input_count; j++) {
        if (inputs + j != written && share(written->data, written->bytes, inputs[j].data, inputs[j].bytes)) return 1;
    }
    for (int32_t j = 0; j < OF->output_count; j++) {
        if (outputs + j != written && share(written->data, written->bytes, outputs[j].data, outputs[j].bytes)) return 1;
    }
    return 0;
}

/* Check every buffer, and put their addresses in order: inputs, outputs that are written, constants. */
static tatami_model_status take_buffers(const tatami_model* m, call_t* c, const tatami_model_buffer* inputs, const tatami_model_buffer* outputs) {
    tatami_model_status status = TATAMI_MODEL_OK;
    void** to = c->buffers;
    for (int32_t k = 0; k < OF->input_count && !status; k++) {
        status = check_buffer("input", k, OF->inputs + k, inputs + k, array_bytes(OF->inputs + k, c->shapes[k]), 1);
        *to++ = inputs[k].data;
    }
    const int64_t* shape = c->results;
    for (int32_t k = 0; k < OF->output_count && !status; shape += OF->outputs[k].rank, k++) {
        int32_t updates = OF->outputs[k].updates;
        const tatami_model_buffer* written = updates < 0 ? outputs + k : inputs + updates;
        if (updates < 0) {
            status = check_buffer("output", k, OF->outputs + k, written, array_bytes(OF->outputs + k, shape), 0);
            *to++ = written->data;
        } else if (outputs[k].data || outputs[k].bytes) {
            status = refuse(TATAMI_MODEL_BAD_ARGUMENT, "output %" PRId32 " (%.100s): it updates an input in place, its own buffer is {0, 0, 0}", k, OF->outputs[k].name);
        }
        if (!status && shares(written, inputs, outputs)) {
            status = refuse(TATAMI_MODEL_BAD_ARGUMENT, "output %" PRId32 " (%.100s): it shares memory with another buffer", k, OF->outputs[k].name);
        }
    }
    memcpy(to, m->constants, (size_t)OF->constant_count * sizeof(void*));
    return status;
}

/* Slots and arena for the sizes in `wanted`. */
static tatami_model_status plan_call(const tatami_model* m, call_t* c) {
    size_t bytes = (size_t)(OF->symbols + 1) * sizeof(int64_t);
    c->wanted[OF->symbols] = m->threads;
    if (c->planned && memcmp(c->sizes, c->wanted, bytes) == 0) return TATAMI_MODEL_OK;
    c->planned = 0;
    int64_t arena = tatami_plan(OF->main, c->wanted, c->slots);
    if (arena < 0) return no_memory("the intermediate values");
    if (arena > c->arena_bytes || !c->arena) {
        free(c->arena);
        c->arena_bytes = 0;
        c->arena = block(arena);
        if (!c->arena) return no_memory("the intermediate values");
        c->arena_bytes = arena;
    }
    memcpy(c->sizes, c->wanted, bytes);
    c->planned = 1;
    return TATAMI_MODEL_OK;
}

API tatami_model_status tatami_model_run(tatami_model* m, const tatami_model_buffer* inputs, const tatami_model_buffer* outputs) {
    message[0] = 0;
    if (!m || (!inputs && OF->input_count) || (!outputs && OF->output_count)) return refuse(TATAMI_MODEL_BAD_ARGUMENT, "the model, the inputs or the outputs are null");
    call_t* c = take_call(m);
    if (!c) return no_memory("a call");
    tatami_model_status status = bind(c, inputs);
    if (!status) status = take_buffers(m, c, inputs, outputs);
    if (!status) status = plan_call(m, c);
    if (!status) {
        int64_t fault = tatami_entry(c->buffers, c->sizes, c->slots, c->arena, m->pool);
        if (fault) status = fault_message(fault);
    }
    give_call(m, c);
    return status;
}

API tatami_model_status tatami_model_shapes(const tatami_model* model, const tatami_model_buffer* inputs, int64_t* const* shapes) {
    message[0] = 0;
    tatami_model* m = (tatami_model*)(uintptr_t)model; /* its kept calls are behind a lock */
    if (!m || (!inputs && OF->input_count) || (!shapes && OF->output_count)) return refuse(TATAMI_MODEL_BAD_ARGUMENT, "the model, the inputs or the shapes are null");
    call_t* c = take_call(m);
    if (!c) return no_memory("a call");
    tatami_model_status status = bind(c, inputs);
    const int64_t* from = c->results;
    for (int32_t k = 0; k < OF->output_count && !status; from += OF->outputs[k].rank, k++) {
        if (OF->outputs[k].rank > 0) memcpy(shapes[k], from, (size_t)OF->outputs[k].rank * sizeof *from);
    }
    give_call(m, c);
    return status;
}
