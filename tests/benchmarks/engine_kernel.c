/* The memory-wall study's two passes by hand: what the streaming engine is measured against.
 *
 * Same work per point as the compacted laws (sweep/kernel.py): every metric, label and mask in float32, reduced row by
 * row. Terms of a row and tables of columns come from engine_c.py; only what varies along both is computed here, 32
 * points at a time; rows are shared among threads. What the compacted laws do not see is used where it saves work: the
 * groups of devices fit one domain, so nothing is scaled out; a rate is the reciprocal of a time, and most room is of
 * the least need; a histogram is one bin per point, not sixteen comparisons.
 *
 * Tried on one core of an AMD EPYC (Zen 5, 4.1 GHz), nanoseconds per 16 points of the first and the second pass:
 *   one vector at a time 7.4, 11.1; in blocks of columns that fit the first-level cache, 32 rows per block 7.6, 11.4
 *   (16 vectors a block 8.2, 12.7); estimated reciprocals with a Newton step for divisions 7.6, 11.4; extremes of
 *   integers for those of floats 8.2, 11.7; two vectors at a time 6.8, 10.1; two quotients of one division 6.8, 10.4;
 *   scheduling before registers are given out 7.1, 9.3; no scheduling after 6.6, 10.4. Each pass has what suits it best.
 * Some 230 and 275 instructions per 32 points, of which 130 and 160 are arithmetic; the rest moves spilled terms.
 */

#include <immintrin.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define LANES 32
#define HIDDEN static inline __attribute__((always_inline))

/* Two vectors side by side: a row's term is then read from memory once for both. */
typedef struct { __m512 a, b; } V;
typedef struct { __mmask16 a, b; } M;

HIDDEN V ADD(V x, V y) { return (V){_mm512_add_ps(x.a, y.a), _mm512_add_ps(x.b, y.b)}; }
HIDDEN V SUB(V x, V y) { return (V){_mm512_sub_ps(x.a, y.a), _mm512_sub_ps(x.b, y.b)}; }
HIDDEN V MUL(V x, V y) { return (V){_mm512_mul_ps(x.a, y.a), _mm512_mul_ps(x.b, y.b)}; }
HIDDEN V MAX(V x, V y) { return (V){_mm512_max_ps(x.a, y.a), _mm512_max_ps(x.b, y.b)}; }
HIDDEN V MIN(V x, V y) { return (V){_mm512_min_ps(x.a, y.a), _mm512_min_ps(x.b, y.b)}; }
HIDDEN V FMA(V x, V y, V z) { return (V){_mm512_fmadd_ps(x.a, y.a, z.a), _mm512_fmadd_ps(x.b, y.b, z.b)}; }
HIDDEN V FNMA(V x, V y, V z) { return (V){_mm512_fnmadd_ps(x.a, y.a, z.a), _mm512_fnmadd_ps(x.b, y.b, z.b)}; }
HIDDEN V FMS(V x, V y, V z) { return (V){_mm512_fmsub_ps(x.a, y.a, z.a), _mm512_fmsub_ps(x.b, y.b, z.b)}; }
#define COMPARE(name, order) \
    HIDDEN M name(M m, V x, V y) { \
        return (M){_mm512_mask_cmp_ps_mask(m.a, x.a, y.a, order), _mm512_mask_cmp_ps_mask(m.b, x.b, y.b, order)}; \
    }
COMPARE(AND_GT, _CMP_GT_OQ)
COMPARE(AND_GE, _CMP_GE_OQ)
COMPARE(AND_LE, _CMP_LE_OQ)
#define ALL ((M){0xffff, 0xffff})
#define GT(x, y) AND_GT(ALL, x, y)
#define GE(x, y) AND_GE(ALL, x, y)
#define LE(x, y) AND_LE(ALL, x, y)
#define ZERO same(_mm512_setzero_ps())
HIDDEN V same(__m512 x) { return (V){x, x}; }

HIDDEN V quotient(V x, V y) { return (V){_mm512_div_ps(x.a, y.a), _mm512_div_ps(x.b, y.b)}; }

HIDDEN __m512 lower(__m512 x, __m512 y, __mmask16 m) { return _mm512_mask_min_ps(x, m, x, y); }
HIDDEN __m512 higher(__m512 x, __m512 y, __mmask16 m) { return _mm512_mask_max_ps(x, m, x, y); }
#define BOTH(place, value, mask) \
    do { \
        V x = value; \
        low[place] = lower(lower(low[place], x.a, mask.a), x.b, mask.b); \
        high[place] = higher(higher(high[place], x.a, mask.a), x.b, mask.b); \
    } while (0)
HIDDEN unsigned points(M m) { return (unsigned)__builtin_popcount(_mm512_kunpackw(m.b, m.a)); }
#define COUNT(place, mask) count[place] += points(mask)

enum { EXTREMES = 10, COUNTS = 8, BINS = 16 };

/* What a row has so far. */
typedef struct {
    __m512 low[EXTREMES], high[EXTREMES];
    __m512i tens[4];
    unsigned count[COUNTS];
} __attribute__((aligned(64))) Sums;

typedef struct {
    const float *columns, *rows;
    long vectors, row_count;
    float *extremes; /* (rows, 2 * EXTREMES): lows, highs */
    int *counts;     /* (rows, COUNTS + BINS) */
    const float *ladders; /* second pass: per kind of row, the thresholds of its bins */
    atomic_long *next;
} Work;

enum { C_CAPACITY, C_CONTEXT, C_HBM, C_PER_BANDWIDTH, C_HBM_TIME, C_PER_FLOPS, C_PER_LINK, C_HOST, C_PRICE, C_ENERGY,
       C_PER_HBM_SHARE, C_PREFILL_READ, C_PREFILL_FLOP, C_PREFILL_LINK, C_TABLES };
enum { R_STORED, R_BATCH, R_ACTIVATIONS, R_TOKEN, R_KV, R_READ, R_KV_OVER, R_HBM_OVER, R_FLOP_SLOPE, R_FLOP, R_LINK,
       R_HOST_TIME, R_PER_BATCH, R_HOST_ENERGY, R_FIRST_SLOPE, R_FIRST_READ, R_FIRST_FLOP_SLOPE, R_FIRST_FLOP,
       R_FIRST_LINK, R_LIMIT, R_FLOP_ENERGY, R_TERMS };
enum { E_INTENSITY, E_COST, E_ENERGY, E_CONTEXT, E_BATCH, E_ROOM, E_MARGIN, E_DISTANCE, E_TIME, E_FIRST };
enum { N_FEASIBLE, N_PHASE_KV, N_REGIME_KV, N_COMPUTE, N_LINKS, N_TIER, N_ADMISSIBLE };

HIDDEN V table(const float *column, int place) {
    return (V){_mm512_load_ps(column + LANES * place), _mm512_load_ps(column + LANES * place + 16)};
}
HIDDEN V term(const float *row, int place) { return same(_mm512_set1_ps(row[place])); }

/* One row of the first pass: hardware, context and placement vary. */
__attribute__((optimize("no-schedule-insns2"))) static void first_row(const float *column, long vectors, const float *row, const float *ladders, Sums *sums) {
#define T(place) table(column, C_##place)
#define R(place) term(row, R_##place)
    (void)ladders;
    __m512 low[EXTREMES], high[EXTREMES];
    unsigned count[COUNTS];
    memcpy(low, sums->low, sizeof low), memcpy(high, sums->high, sizeof high);
    memcpy(count, sums->count, sizeof count);
    for (; vectors--; column += LANES * C_TABLES) {
        V hbm = T(HBM), context = T(CONTEXT), host = T(HOST);
        V room = SUB(T(CAPACITY), R(STORED));
        V sequence = FMA(hbm, R(TOKEN), R(ACTIVATIONS));
        V margin = FNMA(R(BATCH), sequence, room);
        M fits = GE(margin, ZERO);
        V in_hbm = FMA(hbm, R(KV), R(READ));
        V memory = FMA(T(HBM_TIME), R(KV), MUL(T(PER_BANDWIDTH), R(READ)));
        V flop = FMA(context, R(FLOP_SLOPE), R(FLOP));
        V compute = MUL(flop, T(PER_FLOPS));
        V device = MAX(memory, compute);
        V link = MUL(T(PER_LINK), R(LINK));
        V tier = MUL(host, R(HOST_TIME));
        V links = MAX(link, tier);
        V time = MAX(device, links);
        M by_links = GT(links, device);
        COUNT(N_FEASIBLE, fits);
        COUNT(N_PHASE_KV, AND_GT(fits, context, R(KV_OVER)));
        COUNT(N_ADMISSIBLE, AND_LE(fits, time, R(LIMIT)));
        COUNT(N_LINKS, by_links);
        COUNT(N_TIER, AND_GT(by_links, tier, link));
        COUNT(N_COMPUTE, AND_GE(GT(compute, memory), compute, time));
        COUNT(N_REGIME_KV, AND_GE(GT(hbm, R(HBM_OVER)), memory, time));
        V other = MAX(MIN(device, links), MAX(MIN(memory, compute), MIN(link, tier)));
        V intensity = quotient(flop, FMA(host, R(KV), in_hbm));
        V energy = FMA(in_hbm, T(ENERGY), FMA(host, R(HOST_ENERGY), MUL(flop, R(FLOP_ENERGY))));
        V longest = MUL(MAX(FMS(room, R(PER_BATCH), R(ACTIVATIONS)), ZERO), T(PER_HBM_SHARE));
        V first = MAX(FMA(T(PREFILL_READ), R(FIRST_SLOPE), MUL(T(PER_BANDWIDTH), R(FIRST_READ))),
                      FMA(T(PREFILL_FLOP), R(FIRST_FLOP_SLOPE), MUL(T(PER_FLOPS), R(FIRST_FLOP))));
        first = MAX(first, MUL(T(PREFILL_LINK), R(FIRST_LINK)));
        BOTH(E_INTENSITY, intensity, fits);
        BOTH(E_COST, MUL(T(PRICE), time), fits);
        BOTH(E_ENERGY, energy, fits);
        BOTH(E_CONTEXT, context, fits);
        BOTH(E_BATCH, quotient(room, sequence), fits);
        BOTH(E_ROOM, longest, fits);
        BOTH(E_MARGIN, margin, fits);
        BOTH(E_DISTANCE, quotient(time, other), fits);
        BOTH(E_TIME, time, fits);
        BOTH(E_FIRST, first, fits);
    }
    memcpy(sums->low, low, sizeof low), memcpy(sums->high, high, sizeof high);
    memcpy(sums->count, count, sizeof count);
#undef T
#undef R
}

enum { D_BATCH, D_KEPT, D_KEY_KEPT, D_BATCH_KEPT, D_BATCH_KEY_KEPT, D_BATCH_KEY, D_PER_BATCH, D_PER_KEPT, D_KEY,
       D_KEY_PLACE, D_TABLES };
enum { S_VALUE, S_HBM_TOKEN, S_ACTIVATIONS, S_ROOM, S_READ, S_EMBED, S_HBM_KV, S_WRITTEN, S_PER_BANDWIDTH, S_FLOP,
       S_FLOP_KEPT, S_PER_FLOPS, S_LINK, S_HOST_TIME, S_HOST_KV, S_MEMORY_ENERGY,
       S_HOST_ENERGY, S_FLOP_ENERGY, S_KV, S_LADDER, S_PER_KEY_VALUE, S_TERMS = S_PER_KEY_VALUE + 16 };
enum { F_INTENSITY, F_COST, F_ENERGY, F_KV, F_SEQUENCE, F_ROOM, F_NEEDED, F_DISTANCE, F_TIME, F_KEY };

/* Which of 16 bins: edges at least as large as the value, by bisection; a ladder holds the four steps' thresholds. */
HIDDEN __m512i bin_of(__m512 value, const float *ladder) {
    __m512i bin = _mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(value, _mm512_set1_ps(ladder[0]), _CMP_LE_OQ), 8);
    for (int step = 1; step < 4; step++) {
        __m512 edge = _mm512_permutexvar_ps(bin, _mm512_load_ps(ladder + 16 * step));
        __mmask16 beyond = _mm512_cmp_ps_mask(value, edge, _CMP_LE_OQ);
        bin = _mm512_mask_or_epi32(bin, beyond, bin, _mm512_set1_epi32(8 >> step));
    }
    return bin;
}

HIDDEN void tally(__m512i *units, __m512 value, __mmask16 fits, const float *ladder) {
    __m512i one = _mm512_set1_epi32(1), place = _mm512_slli_epi32(bin_of(value, ladder), 2);
    __m512i beyond = _mm512_sub_epi32(place, _mm512_set1_epi32(32));
    units[0] = _mm512_add_epi32(units[0], _mm512_maskz_sllv_epi32(fits, one, place));
    units[1] = _mm512_add_epi32(units[1], _mm512_maskz_sllv_epi32(fits, one, beyond));
}

/* Sixteen counts of four bits in two words; before one can overflow they go to the bytes of `tens`. */
HIDDEN void empty(__m512i *units, __m512i *tens) {
    __m512i nibble = _mm512_set1_epi8(15);
    for (int half = 0; half < 2; half++) {
        tens[2 * half] = _mm512_add_epi8(tens[2 * half], _mm512_and_si512(units[half], nibble));
        __m512i upper = _mm512_and_si512(_mm512_srli_epi32(units[half], 4), nibble);
        tens[2 * half + 1] = _mm512_add_epi8(tens[2 * half + 1], upper);
        units[half] = _mm512_setzero_si512();
    }
}

/* One row of the second pass: batch, bits of keys and retention vary. */
__attribute__((optimize("schedule-insns", "sched-pressure"))) static void second_row(const float *column, long vectors, const float *row, const float *ladders, Sums *sums) {
#define T(place) table(column, D_##place)
#define R(place) term(row, S_##place)
    __m512 low[EXTREMES], high[EXTREMES];
    unsigned count[COUNTS];
    __m512i units[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    const float *ladder = ladders + 4 * 16 * (int)row[S_LADDER];
    __m512 per_key_value = _mm512_loadu_ps(row + S_PER_KEY_VALUE);
    memcpy(low, sums->low, sizeof low), memcpy(high, sums->high, sizeof high);
    memcpy(count, sums->count, sizeof count);
    while (vectors) {
        long some = vectors < 7 ? vectors : 7;
        vectors -= some;
        for (; some--; column += LANES * D_TABLES) {
            V batch = T(BATCH), batch_kept = T(BATCH_KEPT);
            V kv = FMA(R(VALUE), batch_kept, T(BATCH_KEY_KEPT));
            V sequence = FMA(FMA(R(VALUE), T(KEPT), T(KEY_KEPT)), R(HBM_TOKEN), R(ACTIVATIONS));
            V needed = MUL(batch, sequence);
            M fits = LE(needed, R(ROOM));
            V weights = FMA(batch, R(EMBED), R(READ));
            V kv_hbm = FMA(kv, R(HBM_KV), MUL(FMA(R(VALUE), batch, T(BATCH_KEY)), R(WRITTEN)));
            V in_hbm = ADD(weights, kv_hbm);
            V memory = MUL(in_hbm, R(PER_BANDWIDTH));
            V flop = FMA(batch_kept, R(FLOP_KEPT), MUL(batch, R(FLOP)));
            V compute = MUL(flop, R(PER_FLOPS));
            V device = MAX(memory, compute);
            V link = MUL(batch, R(LINK));
            V tier = MUL(kv, R(HOST_TIME));
            V links = MAX(link, tier);
            V time = MAX(device, links);
            V each = MUL(time, T(PER_BATCH));
            M by_links = GT(links, device);
            COUNT(N_FEASIBLE, fits);
            COUNT(N_PHASE_KV, AND_GT(fits, MUL(kv, R(KV)), weights));
            COUNT(N_LINKS, by_links);
            COUNT(N_TIER, AND_GT(by_links, tier, link));
            COUNT(N_COMPUTE, AND_GE(GT(compute, memory), compute, time));
            COUNT(N_REGIME_KV, AND_GE(GT(kv_hbm, weights), memory, time));
            tally(units, each.a, fits.a, ladder), tally(units, each.b, fits.b, ladder);
            V other = MAX(MIN(device, links), MAX(MIN(memory, compute), MIN(link, tier)));
            V intensity = quotient(flop, FMA(kv, R(HOST_KV), in_hbm));
            V energy = FMA(in_hbm, R(MEMORY_ENERGY), FMA(kv, R(HOST_ENERGY), MUL(flop, R(FLOP_ENERGY))));
            V left = MAX(FMS(R(ROOM), T(PER_BATCH), R(ACTIVATIONS)), ZERO);
            V place = T(KEY_PLACE);
            V per_token = {_mm512_permutexvar_ps(_mm512_castps_si512(place.a), per_key_value),
                           _mm512_permutexvar_ps(_mm512_castps_si512(place.b), per_key_value)};
            BOTH(F_INTENSITY, intensity, fits);
            BOTH(F_COST, each, fits);
            BOTH(F_ENERGY, MUL(energy, T(PER_BATCH)), fits);
            BOTH(F_KV, kv, fits);
            BOTH(F_SEQUENCE, sequence, fits);
            BOTH(F_ROOM, MUL(MUL(left, T(PER_KEPT)), per_token), fits);
            BOTH(F_NEEDED, needed, fits);
            BOTH(F_DISTANCE, quotient(time, other), fits);
            BOTH(F_TIME, time, fits);
            BOTH(F_KEY, T(KEY), fits);
        }
        empty(units, sums->tens);
    }
    memcpy(sums->low, low, sizeof low), memcpy(sums->high, high, sizeof high);
    memcpy(sums->count, count, sizeof count);
#undef T
#undef R
}

static void start(Sums *sums) {
    memset(sums, 0, sizeof *sums);
    for (int place = 0; place < EXTREMES; place++) {
        sums->low[place] = _mm512_set1_ps(__builtin_inff());
        sums->high[place] = _mm512_set1_ps(-__builtin_inff());
    }
}

static void finish(const Sums *sums, float *extremes, int *counts) {
    for (int place = 0; place < EXTREMES; place++) {
        extremes[place] = _mm512_reduce_min_ps(sums->low[place]);
        extremes[EXTREMES + place] = _mm512_reduce_max_ps(sums->high[place]);
    }
    for (int place = 0; place < COUNTS; place++) counts[place] = (int)sums->count[place];
    for (int word = 0; word < 4; word++) /* bytes: words 0 and 1 hold the even and odd bins up to 7 */
        for (int byte = 0; byte < 4; byte++) {
            __m512i there = _mm512_and_si512(_mm512_srli_epi32(sums->tens[word], 8 * byte), _mm512_set1_epi32(255));
            counts[COUNTS + 8 * (word / 2) + 2 * byte + word % 2] = _mm512_reduce_add_epi32(there);
        }
}

typedef void Row(const float *, long, const float *, const float *, Sums *);

HIDDEN void walk(const Work *work, Row row_of, long terms) {
    enum { SHARE = 64 };
    for (;;) {
        long from = atomic_fetch_add(work->next, SHARE);
        long to = work->row_count - from < SHARE ? work->row_count : from + SHARE;
        if (from >= to) return;
        for (long row = from; row < to; row++) {
            Sums sums;
            start(&sums);
            row_of(work->columns, work->vectors, work->rows + row * terms, work->ladders, &sums);
            finish(&sums, work->extremes + row * 2 * EXTREMES, work->counts + row * (COUNTS + BINS));
        }
    }
}

static void *first_rows(void *work) { return walk(work, first_row, R_TERMS), NULL; }
static void *second_rows(void *work) { return walk(work, second_row, S_TERMS), NULL; }

/* All rows of a pass. `columns` (vectors, tables, 16), aligned to 64 bytes; `rows` (rows, terms). */
void run_pass(int pass, int threads, const float *columns, long vectors, const float *rows, long row_count,
              const float *ladders, float *extremes, int *counts) {
    atomic_long next = 0;
    Work work = {columns, rows, vectors, row_count, extremes, counts, ladders, &next};
    pthread_t others[64];
    for (int each = 1; each < threads; each++)
        pthread_create(&others[each], NULL, pass ? second_rows : first_rows, &work);
    (pass ? second_rows : first_rows)(&work);
    for (int each = 1; each < threads; each++) pthread_join(others[each], NULL);
}

int column_tables(int pass) { return pass ? D_TABLES : C_TABLES; }
int row_terms(int pass) { return pass ? S_TERMS : R_TERMS; }
