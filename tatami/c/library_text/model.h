/* The C interface of a compiled model.

   A model is created once, run any number of times, by several threads at once if they like, and destroyed. The caller owns
   every buffer: arrays are dense, row by row, in the byte order of the machine. Nothing else is needed at run time: no
   interpreter, no compiler.

       tatami_model* model;
       if (tatami_model_create("constants.bin", 0, &model)) return fail(tatami_model_message());
       tatami_model_buffer in = {x, shape, sizeof x}, out = {y, 0, sizeof y};
       if (tatami_model_run(model, &in, &out)) return fail(tatami_model_message());
       tatami_model_destroy(model);

   Functions return TATAMI_MODEL_OK, which is 0, or the reason why they did nothing; tatami_model_message says more. */
#ifndef TATAMI_MODEL_H
#define TATAMI_MODEL_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. A library whose tatami_model_abi() differs was made for another header. */
#define TATAMI_MODEL_ABI 1

/* Axis of a port whose size each call decides. */
#define TATAMI_MODEL_OPEN (-1)

typedef enum {
    TATAMI_MODEL_OK = 0,
    TATAMI_MODEL_BAD_ARGUMENT = 1,    /* a null pointer, an address or a number of bytes that does not fit, shared memory */
    TATAMI_MODEL_BAD_SHAPE = 2,       /* sizes that the model cannot have */
    TATAMI_MODEL_BAD_CONSTANTS = 3,   /* the file of constants is missing, or of another model */
    TATAMI_MODEL_BAD_DATA = 4,        /* a value that the model cannot take, such as an index outside its array */
    TATAMI_MODEL_OUT_OF_MEMORY = 5,
    TATAMI_MODEL_WRONG_CPU = 6,       /* this CPU lacks instructions that the library uses */
    TATAMI_MODEL_DEFECT = 7           /* a fault of the compiler: please report it */
} tatami_model_status;

/* Element types. Those of 2 and 4 bits have a byte for each element, in its lower bits. */
typedef enum {
    TATAMI_MODEL_BOOL = 0,            /* a byte, 0 or 1 */
    TATAMI_MODEL_I8 = 1,
    TATAMI_MODEL_U8 = 2,
    TATAMI_MODEL_I16 = 3,
    TATAMI_MODEL_U16 = 4,
    TATAMI_MODEL_I32 = 5,
    TATAMI_MODEL_U32 = 6,
    TATAMI_MODEL_I64 = 7,
    TATAMI_MODEL_U64 = 8,
    TATAMI_MODEL_FP16 = 9,
    TATAMI_MODEL_BF16 = 10,
    TATAMI_MODEL_FP32 = 11,
    TATAMI_MODEL_FP64 = 12,
    TATAMI_MODEL_F8E4M3FN = 13,
    TATAMI_MODEL_F8E4M3FNUZ = 14,
    TATAMI_MODEL_F8E5M2 = 15,
    TATAMI_MODEL_F8E5M2FNUZ = 16,
    TATAMI_MODEL_F8E8M0 = 17,
    TATAMI_MODEL_F4E2M1 = 18,
    TATAMI_MODEL_I4 = 19,
    TATAMI_MODEL_U4 = 20,
    TATAMI_MODEL_I2 = 21,
    TATAMI_MODEL_U2 = 22
} tatami_model_dtype;

/* An input or an output, as the model declares it. */
typedef struct {
    const char* name;                 /* UTF-8 */
    const int64_t* shape;             /* `rank` sizes; TATAMI_MODEL_OPEN for one that each call decides */
    int32_t rank;
    int32_t dtype;                    /* tatami_model_dtype */
    int32_t element_bytes;
    int32_t alignment;                /* bytes of which the address is a multiple */
    int32_t updates;                  /* of an output that is an input updated in place: the number of that input; else -1 */
} tatami_model_port;

/* An array of the caller. */
typedef struct {
    void* data;                       /* may be null if the array has no elements */
    const int64_t* shape;             /* of an input: its sizes; null: those of its port, if none is open. Outputs: not read */
    int64_t bytes;                    /* of an input: its size in memory. Of an output: room, at least what the result takes */
} tatami_model_buffer;

typedef struct tatami_model tatami_model;

/* The version of the interface that the library has. */
int32_t tatami_model_abi(void);

/* Numbers of inputs and outputs, and each of them; null for a number outside. Valid without a model. */
int32_t tatami_model_input_count(void);
int32_t tatami_model_output_count(void);
const tatami_model_port* tatami_model_input(int32_t k);
const tatami_model_port* tatami_model_output(int32_t k);

/* A model. `constants`: path of constants.bin, which is mapped read-only and must not change while the model exists; not read
   by a library that has its constants inside, and may be null then. `threads`: that share the work of a call, the calling one
   included, 1 to 1024; 0: the processors that this process may use. */
tatami_model_status tatami_model_create(const char* constants, int32_t threads, tatami_model** model);

/* The end of a model that no call is using; null is allowed. */
void tatami_model_destroy(tatami_model* model);

/* The shapes of the outputs for inputs of these shapes: `shapes[k]` has room for the rank of output k. Reads the inputs' shapes
   only, so that `data` and `bytes` may be 0. */
tatami_model_status tatami_model_shapes(const tatami_model* model, const tatami_model_buffer* inputs, int64_t* const* shapes);

/* One run: a buffer for each input and each output, in order. Buffers that are written share memory with no other buffer. An
   output that updates an input is in that input's buffer afterwards; its own buffer is {null, null, 0}.

   Several threads may call this at the same time with the same model. The model's threads then help one of the calls, the others
   run in their own thread. */
tatami_model_status tatami_model_run(tatami_model* model, const tatami_model_buffer* inputs, const tatami_model_buffer* outputs);

/* What the last function that failed in this thread has to say, in English; empty if none has. */
const char* tatami_model_message(void);

#ifdef __cplusplus
}
#endif
#endif
