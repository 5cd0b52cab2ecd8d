/* The description of a model for library.c: ports, sizes, memory, constants (c/print_library.py). Texts are data: a user's
   word stands in strings only.
   @TABLES    arrays: shapes of ports, ports, waves and places of each program, calls, constants, steps, equations, CPU bits
   @SIZES     for each program: the bytes of its memory, and the sizes of its callees
   @BIND      statements that write the sizes s from the shapes x, and check them
   @RESULTS   statements that write the shapes of the outputs to `to`, one after the other
   @SETUP     True if there is a program that prepares constants
   @LINKED    True if the bytes of constants.bin are in the library
   @FIELDS    values of the description's fields
*/
#include "library.h"

@if SETUP
int64_t tatami_setup(void* const*, const int64_t*, const int64_t*, void*, tatami_pool*);
@end
@if LINKED
extern const unsigned char tatami_linked_constants[];
@end

@TABLES

@SIZES

static tatami_model_status bind(const int64_t* const* x, int64_t* s) {
    int overflow = 0, *over = &overflow;
    int64_t want = 0, have = 0;
    (void)x, (void)s, (void)want, (void)have;
    @BIND
    return *over ? tatami_broken("64 bits", 0, 0) : TATAMI_MODEL_OK;
}

static void results(const int64_t* s, int64_t* to) {
    (void)s, (void)to;
    @RESULTS
}

const tatami_description tatami_described = {
    @FIELDS
};
