/* A caller of a library for tests: reads the shape and the bytes of each input from stdin, runs the model `repeats` times in each
   of `callers` threads at once, checks that all results are the same, and writes the shape and the bytes of each output to stdout.
       driver CONSTANTS THREADS REPEATS CALLERS
   A refusal: "error STATUS: MESSAGE" on stderr, exit code 3. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static tatami_model* model;
static tatami_model_buffer inputs[64];
static int64_t shapes[64][16];
static int repeats;

typedef struct { tatami_model_status status; char said[512]; int64_t sizes[64][16]; void* data[64]; int64_t bytes[64]; } result_t;

static void need(int ok, const char* what) {
    if (ok) return;
    fprintf(stderr, "driver: %s\n", what);
    exit(4);
}

static void* memory(int64_t bytes) {
    void* p = malloc((size_t)bytes);
    need(p || !bytes, "memory");
    if (bytes) memset(p, 0x5a, (size_t)bytes);
    return p;
}

static int64_t bytes_of(const tatami_model_port* port, const int64_t* shape) {
    int64_t n = port->element_bytes;
    for (int32_t a = 0; a < port->rank; a++) n *= shape[a];
    return n;
}

static void once(result_t* r) {
    int32_t ins = tatami_model_input_count(), outs = tatami_model_output_count();
    tatami_model_buffer in[64], out[64] = {{0}};
    int64_t* rows[64];
    for (int32_t k = 0; k < ins; k++) {
        in[k] = inputs[k];
        in[k].data = memory(in[k].bytes);
        if (in[k].bytes) memcpy(in[k].data, inputs[k].data, (size_t)in[k].bytes);
    }
    for (int32_t k = 0; k < outs; k++) rows[k] = r->sizes[k];
    r->status = tatami_model_shapes(model, in, rows);
    for (int32_t k = 0; k < outs && !r->status; k++) {
        r->bytes[k] = bytes_of(tatami_model_output(k), r->sizes[k]);
        if (tatami_model_output(k)->updates < 0) out[k] = (tatami_model_buffer){memory(r->bytes[k]), 0, r->bytes[k]};
    }
    if (!r->status) r->status = tatami_model_run(model, in, out);
    if (r->status) snprintf(r->said, sizeof r->said, "%s", tatami_model_message());
    for (int32_t k = 0; k < outs; k++) {
        int32_t u = tatami_model_output(k)->updates;
        r->data[k] = u < 0 ? out[k].data : in[u].data;
        if (u >= 0) in[u].data = NULL;
    }
    for (int32_t k = 0; k < ins; k++) free(in[k].data);
}

static void* caller(void* argument) {
    result_t* first = argument;
    once(first);
    for (int i = 1; i < repeats; i++) {
        result_t* again = calloc(1, sizeof *again);
        once(again);
        need(again->status == first->status, "another status in another run");
        for (int32_t k = 0; k < tatami_model_output_count(); k++) {
            need(first->status || !first->bytes[k] || !memcmp(again->data[k], first->data[k], (size_t)first->bytes[k]), "another result in another run");
            free(again->data[k]);
        }
        free(again);
    }
    return NULL;
}

static void refused(int status, const char* said) {
    fprintf(stderr, "error %d: %s\n", status, said);
    tatami_model_destroy(model);
    exit(3);
}

int main(int argc, char** argv) {
    need(argc == 5, "arguments");
    int callers = atoi(argv[4]);
    repeats = atoi(argv[3]);
    need(tatami_model_abi() == TATAMI_MODEL_ABI, "another interface");
    for (int32_t k = 0; k < tatami_model_input_count(); k++) {
        const tatami_model_port* port = tatami_model_input(k);
        need(port->rank == 0 || fread(shapes[k], 8, (size_t)port->rank, stdin) == (size_t)port->rank, "a shape");
        int64_t bytes = bytes_of(port, shapes[k]);
        inputs[k] = (tatami_model_buffer){memory(bytes), shapes[k], bytes};
        need(!bytes || fread(inputs[k].data, 1, (size_t)bytes, stdin) == (size_t)bytes, "the bytes of an input");
    }
    tatami_model_status status = tatami_model_create(argv[1], atoi(argv[2]), &model);
    if (status) refused(status, tatami_model_message());
    pthread_t threads[16];
    result_t* results = calloc((size_t)callers, sizeof *results);
    for (int i = 0; i < callers; i++) need(!pthread_create(&threads[i], NULL, caller, &results[i]), "a thread");
    for (int i = 0; i < callers; i++) pthread_join(threads[i], NULL);
    if (results[0].status) refused(results[0].status, results[0].said);
    for (int32_t k = 0; k < tatami_model_output_count(); k++) {
        for (int i = 1; i < callers; i++) {
            need(!results[i].status && !(results[0].bytes[k] && memcmp(results[0].data[k], results[i].data[k], (size_t)results[0].bytes[k])), "another result in another thread");
        }
        fwrite(results[0].sizes[k], 8, (size_t)tatami_model_output(k)->rank, stdout);
        if (results[0].bytes[k]) fwrite(results[0].data[k], 1, (size_t)results[0].bytes[k], stdout);
        for (int i = 0; i < callers; i++) free(results[i].data[k]);
    }
    for (int32_t k = 0; k < tatami_model_input_count(); k++) free(inputs[k].data);
    free(results);
    tatami_model_destroy(model);
    return 0;
}
