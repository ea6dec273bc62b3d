/* Convolution, 2x2 max-pooling, bias and leaky ReLU in one pass, and its gradients.

   Images are stored with the channels last, weights as (outputs, height, width, channels). Going back, only one
   in four outputs of the convolution has a gradient, the one that pooling chose: the others cost nothing here.
   Each number is summed in one fixed order, whatever the width of the vector unit, and where a product is added
   without being rounded first, that is written out (`fused`): no compiler and no option decides about a bit. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__x86_64__)
#error "without FMA instructions each fused step would be a call, and torch is faster"
#endif

#ifndef REAL
#define REAL float
#define WHOLE int32_t /* an integer as wide */
#endif

enum { BYTES = 32, LANES = BYTES / sizeof(REAL), PAIR = 2 * LANES, TILE = 12, LINE = 64 };
typedef REAL vec __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef WHOLE mask __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1), may_alias));

typedef struct {
    int64_t images, height, width, channels, outputs, side, padding;
    double slope;
} Shape;

static int64_t pooled(int64_t size, const Shape *s) { return (size + 2 * s->padding - s->side + 1) / 2; }
static int64_t row_length(const Shape *s) { return (s->width + 2 * s->padding) * s->channels; }
static int64_t up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

/* a * b + c, rounded once; b is one number for all lanes */
static inline __attribute__((always_inline)) vec fused(vec a, REAL b, vec c) {
    vec all = b - (vec){0};
#ifdef __FMA__
    return sizeof(REAL) == sizeof(float) ? (vec)_mm256_fmadd_ps((__m256)a, (__m256)all, (__m256)c)
                                         : (vec)_mm256_fmadd_pd((__m256d)a, (__m256d)all, (__m256d)c);
#else
    for (int k = 0; k < LANES; k++)
        c[k] = sizeof(REAL) == sizeof(float) ? (REAL)__builtin_fmaf(a[k], all[k], c[k])
                                             : (REAL)__builtin_fma(a[k], all[k], c[k]);
    return c;
#endif
}

/* One image with its border of zeros, and some zeros behind it that vectors may read. It begins where a line of the
   cache begins: a vector that lies in two lines is read and written at half the speed. */
static REAL *bordered(const Shape *s) {
    int64_t size = up(((s->height + 2 * s->padding) * row_length(s) + LANES) * sizeof(REAL), LINE);
    REAL *wide = aligned_alloc(LINE, size);
    return wide ? memset(wide, 0, size) : 0;
}

static void copy_rows(const Shape *s, REAL *wide, REAL *image, int into_wide) {
    int64_t row = row_length(s), count = s->width * s->channels;
    for (int64_t i = 0; i < s->height; i++) {
        REAL *inner = wide + (i + s->padding) * row + s->padding * s->channels, *outer = image + i * count;
        memcpy(into_wide ? inner : outer, into_wide ? outer : inner, count * sizeof(REAL));
    }
}

/* The largest of four vectors and which it is; as torch has it: the first of equals, but NaN above all. */
static inline vec largest(const vec four[4], mask *which) {
    vec best = four[0];
    *which = (mask){0};
    for (int place = 1; place < 4; place++) {
        mask better = (four[place] > best) | (four[place] != four[place]);
        best = (vec)(((mask)four[place] & better) | ((mask)best & ~better));
        *which = (*which & ~better) | (better & place);
    }
    return best;
}

/* Pool four vectors of outputs, add the bias, activate; `chosen` is the place of the largest, 0 to 3. */
static inline void finish(const Shape *s, const vec four[4], const REAL *bias, REAL *out, uint8_t *chosen) {
    mask which;
    vec best = largest(four, &which) + *(const vec *)bias;
    mask above = best > 0;
    *(vec *)out = (vec)(((mask)best & above) | ((mask)(best * (REAL)s->slope) & ~above));
    *(bytes *)chosen = __builtin_convertvector(which, bytes);
}

/* What is left to do after a convolution. */
int pool(const Shape *s, const REAL *restrict convolved, const REAL *restrict bias, REAL *restrict out,
         uint8_t *restrict chosen) {
    int64_t rows = pooled(s->height, s), columns = pooled(s->width, s), c = s->outputs;
    int64_t row = (s->width + 2 * s->padding - s->side + 1) * c, image = (s->height + 2 * s->padding - s->side + 1) * row;
    for (int64_t p = 0; p < s->images * rows * columns; p++) {
        const REAL *corner = convolved + p / (rows * columns) * image + p / columns % rows * 2 * row + p % columns * 2 * c;
        for (int64_t o = 0; o < c; o += LANES) {
            vec four[4];
            for (int k = 0; k < 4; k++) four[k] = *(const vec *)(corner + o + (k >> 1) * row + (k & 1) * c);
            finish(s, four, bias + o, out + p * c + o, chosen + p * c + o);
        }
    }
    return 0;
}

/* The four convolutions under one pooled pixel, for two vectors of outputs at once; `taps` are their weights. */
static inline void window(const Shape *s, const REAL *corner, const vec *taps, vec sums[2][4]) {
    int64_t row = row_length(s), run = s->side * s->channels, next = s->channels;
    vec sum[2][4] = {{{0}}};
    for (int64_t r = 0; r < s->side; r++) {
        const REAL *upper = corner + r * row, *lower = upper + row;
        for (int64_t k = 0; k < run; k++, taps += 2)
            for (int half = 0; half < 2; half++) {
                sum[half][0] = fused(taps[half], upper[k], sum[half][0]);
                sum[half][1] = fused(taps[half], upper[k + next], sum[half][1]);
                sum[half][2] = fused(taps[half], lower[k], sum[half][2]);
                sum[half][3] = fused(taps[half], lower[k + next], sum[half][3]);
            }
    }
    memcpy(sums, sum, sizeof sum);
}

/* All at once, for grey images: there a convolution by itself spends its time on storing what pooling drops. */
int convolve(const Shape *s, REAL *x, const REAL *weight, const REAL *bias, REAL *out, uint8_t *chosen) {
    int64_t columns = pooled(s->width, s), pixels = pooled(s->height, s) * columns, row = row_length(s);
    int64_t taps = s->side * s->side * s->channels, c = s->outputs;
    REAL *wide = bordered(s), *turned = malloc(c * taps * sizeof(REAL)); /* by pairs of vectors, then by tap */
    int failed = !wide || !turned;
    for (int64_t w = 0; !failed && w < c * taps; w++)
        turned[(w / taps / PAIR * taps + w % taps) * PAIR + w / taps % PAIR] = weight[w];
    for (int64_t n = 0; !failed && n < s->images; n++) {
        copy_rows(s, wide, x + n * s->height * s->width * s->channels, 1);
        for (int64_t o = 0; o < c; o += PAIR)
            for (int64_t p = 0; p < pixels; p++) {
                vec sums[2][4];
                int64_t at = (n * pixels + p) * c + o;
                window(s, wide + p / columns * 2 * row + p % columns * 2 * s->channels, (vec *)(turned + o * taps), sums);
                finish(s, sums[0], bias + o, out + at, chosen + at);
                finish(s, sums[1], bias + o + LANES, out + at + LANES, chosen + at + LANES);
            }
    }
    return free(wide), free(turned), failed;
}

typedef struct {
    int64_t places, row; /* how many were chosen in this image, and how long a bordered row is */
    const int32_t *at;
    const REAL *gradient;
} Chosen;

/* One image: where each output was chosen and its gradient there, output by output. Nothing branches on what is
   chosen: no processor could guess that. */
static void find_chosen(const Shape *s, const REAL *dout, const REAL *out, const uint8_t *chosen, double *dbias,
                        int32_t *at, REAL *gradient) {
    int64_t columns = pooled(s->width, s), places = pooled(s->height, s) * columns, row = row_length(s);
    for (int64_t o = 0; o < s->outputs; o += LANES)
        for (int64_t p = 0; p < places; p++) {
            int64_t i = p * s->outputs + o, corner = p / columns * 2 * row + p % columns * 2 * s->channels;
            vec g = *(const vec *)(dout + i);
            mask above = *(const vec *)(out + i) > 0;
            g = (vec)(((mask)g & above) | ((mask)(g * (REAL)s->slope) & ~above));
            for (int k = 0; k < LANES; k++) {
                at[(o + k) * places + p] = corner + (chosen[i + k] >> 1) * row + (chosen[i + k] & 1) * s->channels;
                gradient[(o + k) * places + p] = g[k];
                dbias[o + k] += g[k];
            }
        }
}

/* `r` rows of `v` vectors of one output's weights: gradients from all places that pooling chose in one image. */
static inline __attribute__((always_inline)) void rows(int r, int v, const Chosen *c, const REAL *x, const vec *weight,
                                                       vec *dweight, REAL *dx) {
    vec sum[TILE];
    for (int k = 0; k < r * v; k++) sum[k] = (vec){0};
    for (int64_t p = 0; p < c->places; p++) {
        const REAL *patch = x + c->at[p], g = c->gradient[p];
        for (int k = 0; k < r * v; k++) sum[k] = fused(*(const vec *)(patch + k / v * c->row + k % v * LANES), g, sum[k]);
    }
    for (int k = 0; k < r * v; k++) dweight[k] += sum[k];
    if (!dx) return;
    for (int k = 0; k < r * v; k++) sum[k] = weight[k];
    for (int64_t p = 0; p < c->places; p++) {
        REAL *patch = dx + c->at[p], g = c->gradient[p];
        for (int k = 0; k < r * v; k++) {
            vec *at = (vec *)(patch + k / v * c->row + k % v * LANES);
            *at = fused(sum[k], g, *at);
        }
    }
}

static void any_rows(int r, int v, const Chosen *c, const REAL *x, const vec *weight, vec *dweight, REAL *dx) {
#define CASE(R, V) case R * 16 + V: rows(R, V, c, x, weight, dweight, dx); break;
    switch (r * 16 + v) { /* constants, so that the sums stay in registers */
        CASE(1, 1) CASE(1, 2) CASE(1, 3) CASE(1, 4) CASE(1, 5) CASE(1, 6) CASE(1, 7) CASE(1, 8) CASE(1, 9) CASE(1, 10)
        CASE(1, 11) CASE(1, 12) CASE(3, 1) CASE(3, 2) CASE(3, 3) CASE(3, 4) CASE(5, 1) CASE(5, 2)
    }
}

/* One image, row by row. `weight` has rows of full vectors. */
static void one_image(const Shape *s, const int32_t *at, const REAL *gradient, REAL *x, REAL *dx, const REAL *weight,
                      REAL *dweight) {
    int64_t places = pooled(s->height, s) * pooled(s->width, s), row = row_length(s);
    int64_t vectors = up(s->side * s->channels, LANES) / LANES;
    /* short rows are taken together: one sum alone would wait for itself */
    int64_t together = (s->side == 3 || s->side == 5) && s->side * vectors <= TILE ? s->side : 1;
    for (int64_t o = 0; o < s->outputs; o++) {
        Chosen c = {places, row, at + o * places, gradient + o * places};
        for (int64_t r = 0; r < s->side; r += together)
            for (int64_t v = 0; v < vectors; v += TILE) {
                int64_t w = ((o * s->side + r) * vectors + v) * LANES, moved = r * row + v * LANES;
                any_rows(together, vectors - v < TILE ? vectors - v : TILE, &c, x + moved, (const vec *)(weight + w),
                         (vec *)(dweight + w), dx ? dx + moved : 0);
            }
    }
}

int backward(const Shape *s, const REAL *dout, const REAL *out, const uint8_t *chosen, REAL *x, const REAL *weight,
             REAL *dweight, REAL *dbias, REAL *dx) {
    int64_t chosen_ones = pooled(s->height, s) * pooled(s->width, s) * s->outputs, image = s->height * s->width * s->channels;
    int64_t run = s->side * s->channels, full = up(run, LANES), weights = s->outputs * s->side;
    REAL *wide = bordered(s), *dwide = bordered(s), *gradient = malloc(chosen_ones * sizeof(REAL));
    REAL *rows_of = calloc(2 * weights * full, sizeof(REAL)), *drows = rows_of + weights * full;
    int32_t *at = malloc(chosen_ones * sizeof(int32_t));
    double *sums = calloc(s->outputs, sizeof(double));
    int failed = !wide || !dwide || !gradient || !rows_of || !at || !sums;
    if (!failed) {
        for (int64_t w = 0; w < weights; w++) memcpy(rows_of + w * full, weight + w * run, run * sizeof(REAL));
        for (int64_t n = 0; n < s->images; n++) {
            int64_t first = n * chosen_ones;
            copy_rows(s, wide, x + n * image, 1);
            if (dx) memset(dwide, 0, (s->height + 2 * s->padding) * row_length(s) * sizeof(REAL));
            find_chosen(s, dout + first, out + first, chosen + first, sums, at, gradient);
            one_image(s, at, gradient, wide, dx ? dwide : 0, rows_of, drows);
            if (dx) copy_rows(s, dwide, dx + n * image, 0);
        }
        for (int64_t w = 0; w < weights; w++) memcpy(dweight + w * run, drows + w * full, run * sizeof(REAL));
        for (int64_t o = 0; o < s->outputs; o++) dbias[o] = (REAL)sums[o];
    }
    free(wide), free(dwide), free(gradient), free(rows_of), free(at), free(sums);
    return failed;
}
