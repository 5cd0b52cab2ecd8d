/* Offsets in the arena of a call, for the sizes of the call: the largest buffer first, each in the smallest gap between the
   buffers that live in one of its waves (execution/arena.py). */
#include "library.h"

#include <stdlib.h>

#define MOST_BYTES ((int64_t)1 << 46)

typedef struct { int64_t bytes, offset; int32_t first, last; } interval_t;

static int64_t aligned(int64_t n) { return n <= 0 ? 0 : (n + TATAMI_LINE - 1) / TATAMI_LINE * TATAMI_LINE; }

static int by_size(const void* a, const void* b) {
    const interval_t *x = *(interval_t* const*)a, *y = *(interval_t* const*)b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Place n intervals; `order` and `placed` have room for n. Returns the bytes, -1 for more than a memory holds. */
static int64_t place(interval_t* v, int32_t n, interval_t** order, interval_t** placed) {
    int32_t count = 0;
    int64_t peak = 0;
    for (int32_t i = 0; i < n; i++) order[i] = v + i;
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int32_t i = 0; i < n && order[i]->bytes > 0; i++) {
        interval_t* it = order[i];
        int64_t size = aligned(it->bytes), at = -1, gap = 0, end = 0;
        for (int32_t j = 0; j < count; j++) {
            const interval_t* other = placed[j];
            if (other->first > it->last || it->first > other->last) continue;
            if (other->offset - end >= size && (at < 0 || other->offset - end < gap)) at = end, gap = other->offset - end;
            end = most(end, other->offset + aligned(other->bytes));
        }
        it->offset = at < 0 ? end : at;
        if (it->offset + size > MOST_BYTES) return -1;
        peak = most(peak, it->offset + size);
        int32_t j = count++;
        for (; j > 0 && placed[j - 1]->offset > it->offset; j--) placed[j] = placed[j - 1];
        placed[j] = it;
    }
    return peak;
}

/* A plan of one program: memory for it, then `fill`. */
typedef struct { int64_t* values; int64_t* callee_sizes; interval_t* v; interval_t** order; } work_t;

static int64_t plan(int32_t program, const int64_t* s, int depth, int64_t* o, int64_t* used);

/* The header of call c at `head`, relative to the call's memory; callees from slot *next on. Returns the call's bytes. */
static int64_t frame(const tatami_program* p, const tatami_call_site* c, const int64_t* s, const int64_t* carried, int depth,
                     int64_t* o, int64_t* head, int64_t* next, int64_t* sizes) {
    int64_t end = 0, inside = 0;
    int64_t* links = head + 1;
    if (c->carried >= 0) {
        *links++ = 0;
        end = TATAMI_LINE;
        for (int32_t j = 0; j < c->carried; j++) {
            if (carried[j] > MOST_BYTES) return -1;
            *links++ = end;
            end += aligned(carried[j]);
        }
    }
    head[0] = end;
    for (int32_t k = 0; k < c->callees; k++) {
        links[k] = 0;
        if (depth >= TATAMI_MOST_DEPTH) continue;
        int64_t used = 0;
        c->sizes(s, k, sizes);
        sizes[tatami_described.programs[c->callee[k]].symbols] = s[p->symbols];
        int64_t bytes = plan(c->callee[k], sizes, depth + 1, o + *next, &used);
        if (bytes < 0) return -1;
        links[k] = *next;
        *next += used;
        inside = most(inside, bytes);
    }
    return end + inside;
}

static int32_t header_slots(const tatami_call_site* c) { return 1 + (c->carried >= 0 ? 1 + c->carried : 0) + c->callees; }

static int64_t fill(const tatami_program* p, const int64_t* s, int depth, int64_t* o, int64_t* used, const work_t* w) {
    int32_t n = p->places + p->call_count;
    int64_t next = p->own;
    for (int32_t k = 0; k < p->call_count; k++) next += header_slots(&p->calls[k]);
    p->bytes(s, w->values);
    for (int32_t k = 0; k < p->places; k++) {
        if (w->values[k] > MOST_BYTES) return -1;
        w->v[k] = (interval_t){w->values[k], 0, p->waves[k][0], p->waves[k][1]};
    }
    int64_t *head = o + p->own, *carried = w->values + p->places;
    for (int32_t k = 0; k < p->call_count; k++) {
        const tatami_call_site* c = &p->calls[k];
        int64_t bytes = frame(p, c, s, carried, depth, o, head, &next, w->callee_sizes);
        if (bytes < 0 || bytes > MOST_BYTES) return -1;
        w->v[p->places + k] = (interval_t){bytes, 0, c->wave, c->wave};
        head += header_slots(c);
        carried += c->carried > 0 ? c->carried : 0;
    }
    int64_t peak = place(w->v, n, w->order, w->order + n);
    for (int32_t k = 0; k < p->own; k++) o[k] = w->v[p->place[k]].offset;
    head = o + p->own;
    for (int32_t k = 0; k < p->call_count; k++) {
        int32_t own = header_slots(&p->calls[k]) - p->calls[k].callees;
        for (int32_t j = 0; j < own; j++) head[j] += w->v[p->places + k].offset;
        head += header_slots(&p->calls[k]);
    }
    *used = next;
    return peak;
}

static int64_t plan(int32_t program, const int64_t* s, int depth, int64_t* o, int64_t* used) {
    const tatami_program* p = &tatami_described.programs[program];
    size_t n = (size_t)(p->places + p->call_count) + 1, symbols = 1;
    for (int32_t k = 0; k < tatami_described.programs_count; k++) {
        if ((size_t)tatami_described.programs[k].symbols + 1 > symbols) symbols = (size_t)tatami_described.programs[k].symbols + 1;
    }
    work_t w = {calloc((size_t)p->values + 1, sizeof(int64_t)), calloc(symbols, sizeof(int64_t)), calloc(n, sizeof(interval_t)),
                calloc(2 * n, sizeof(interval_t*))};
    int64_t bytes = -1;
    if (w.values && w.callee_sizes && w.v && w.order) bytes = fill(p, s, depth, o, used, &w);
    free(w.values);
    free(w.callee_sizes);
    free(w.v);
    free(w.order);
    return bytes;
}

int64_t tatami_plan(int32_t program, const int64_t* s, int64_t* o) {
    int64_t used = 0;
    return plan(program, s, 0, o, &used);
}
