/* Runs the model of this folder on made-up inputs and prints its outputs.

       cc example.c libmodel.* -lm -pthread -Wl,-rpath,'$ORIGIN' -o example && ./example

   ./example [SIZE [CONSTANTS [THREADS]]]: SIZE is taken for every open axis (1), CONSTANTS is the path of constants.bin, THREADS
   share the work (0: all processors). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static void check(tatami_model_status status) {
    if (status == TATAMI_MODEL_OK) return;
    fprintf(stderr, "error %d: %s\n", (int)status, tatami_model_message());
    exit(1);
}

static void* memory(int64_t bytes) {
    void* p = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    if (!p) exit(1);
    return p;
}

static int64_t elements(const int64_t* shape, int32_t rank) {
    int64_t n = 1;
    for (int32_t a = 0; a < rank; a++) n *= shape[a];
    return n;
}

/* Floats are multiples of 1/64 from -1 to 1; everything else is 0. */
static void fill(void* data, int32_t dtype, int64_t count, int64_t bytes) {
    memset(data, 0, (size_t)bytes);
    for (int64_t i = 0; i < count; i++) {
        double x = (double)(i % 129 - 64) / 64;
        if (dtype == TATAMI_MODEL_FP32) ((float*)data)[i] = (float)x;
        if (dtype == TATAMI_MODEL_FP64) ((double*)data)[i] = x;
    }
}

static double element(const void* data, int32_t dtype, int64_t i) {
    switch (dtype) {
    case TATAMI_MODEL_FP32: return ((const float*)data)[i];
    case TATAMI_MODEL_FP64: return ((const double*)data)[i];
    case TATAMI_MODEL_I64: return (double)((const int64_t*)data)[i];
    case TATAMI_MODEL_I32: return ((const int32_t*)data)[i];
    default: return ((const unsigned char*)data)[i];
    }
}

int main(int argc, char** argv) {
    int64_t size = argc > 1 ? atoll(argv[1]) : 1;
    if (size < 0) {
        fprintf(stderr, "a size is 0 or more\n");
        return 2;
    }
    const char* constants = argc > 2 ? argv[2] : "constants.bin";
    int32_t ins = tatami_model_input_count(), outs = tatami_model_output_count();
    tatami_model* model;
    check(tatami_model_create(constants, argc > 3 ? atoi(argv[3]) : 0, &model));

    tatami_model_buffer* in = calloc((size_t)ins + 1, sizeof *in);
    tatami_model_buffer* out = calloc((size_t)outs + 1, sizeof *out);
    int64_t** shapes = calloc((size_t)(ins + outs) + 1, sizeof *shapes);
    for (int32_t k = 0; k < ins; k++) {
        const tatami_model_port* port = tatami_model_input(k);
        int64_t* shape = shapes[outs + k] = memory(port->rank * 8);
        for (int32_t a = 0; a < port->rank; a++) shape[a] = port->shape[a] == TATAMI_MODEL_OPEN ? size : port->shape[a];
        int64_t count = elements(shape, port->rank), bytes = count * port->element_bytes;
        in[k] = (tatami_model_buffer){memory(bytes), shape, bytes};
        fill(in[k].data, port->dtype, count, bytes);
    }

    for (int32_t k = 0; k < outs; k++) shapes[k] = memory(tatami_model_output(k)->rank * 8);
    check(tatami_model_shapes(model, in, shapes));
    for (int32_t k = 0; k < outs; k++) {
        const tatami_model_port* port = tatami_model_output(k);
        if (port->updates >= 0) continue; /* its result is in an input's buffer */
        int64_t bytes = elements(shapes[k], port->rank) * port->element_bytes;
        out[k] = (tatami_model_buffer){memory(bytes), 0, bytes};
    }
    check(tatami_model_run(model, in, out));

    for (int32_t k = 0; k < outs; k++) {
        const tatami_model_port* port = tatami_model_output(k);
        const void* data = port->updates >= 0 ? in[port->updates].data : out[k].data;
        int64_t count = elements(shapes[k], port->rank);
        printf("%s [", port->name);
        for (int32_t a = 0; a < port->rank; a++) printf("%s%lld", a ? ", " : "", (long long)shapes[k][a]);
        printf("]:");
        for (int64_t i = 0; i < count && i < 8; i++) printf(" %.6g", element(data, port->dtype, i));
        printf("\n");
    }
    for (int32_t k = 0; k < ins; k++) free(in[k].data);
    for (int32_t k = 0; k < outs; k++) free(out[k].data);
    for (int32_t k = 0; k < ins + outs; k++) free(shapes[k]);
    free(shapes);
    free(out);
    free(in);
    tatami_model_destroy(model);
    return 0;
}
