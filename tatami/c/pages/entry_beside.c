/* Kernels or loops of one wave that run at the same time, as a chunk function for the pool: item k is the k-th of them. Kernels
   divide no work inside it, since the pool is busy.
   @NUMBER  number of its first instruction
   @CASES   case k: launch or loop k
*/
static int beside_@NUMBER(void* context, int64_t begin, int64_t end) {
    const beside_t* x = context;
    void* const* b = x->b; void* const* c = x->c; const int64_t* s = x->s; const int64_t* o = x->o;
    char* arena = x->arena; tatami_pool* pool = x->pool;
    (void)b, (void)c, (void)s, (void)o, (void)arena;
    for (int64_t k = begin; k < end; ++k) switch (k) {
    @CASES
    }
    return 0;
}
