/* op_ref.c - computes every operation by its formula, in plain C and double: the slow reference.
 *
 * Tests compare the fast entries with it; processors without an entry of their own run it. Nothing
 * is blocked, fused or approximated here, and softmax takes its two passes.
 *
 * The table of kernel sets comes last, with the test of which sets this processor runs. The test is
 * not in the sets' own files, because those are compiled for the very instruction set that it asks
 * about. */
#include "engine/kernels/half.h"
#include "engine/kernels/kv_code.h"
#include "engine/kernels/op.h"

#include <math.h>

static bool supported(void)
{
    return true;
}

static void ref_gemm(const struct gemm *g, uint32_t tile_first, uint32_t tile_count, void *scratch)
{
    const struct weight *w = g->w;
    float *row = scratch;
    for (uint32_t r = tile_first * TILE_ROWS; r < (tile_first + tile_count) * TILE_ROWS; r++) {
        if (r < w->rows) weight_row(w, r, row);
        for (uint32_t t = 0; t < g->tokens; t++) {
            const float *x = g->x + t * g->x_stride;
            float *y = g->y + t * g->y_stride + r;
            double sum = g->accumulate ? (double)*y : 0.0;
            for (uint32_t k = 0; k < w->cols && r < w->rows; k++)
                sum += (double)row[k] * (double)x[k];
            *y = (float)sum;
        }
    }
}

static void ref_rms_norm(const float *x, const float *w, float eps, uint32_t n, float *y)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    double factor = 1 / sqrt(squares / n + (double)eps);
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)((double)x[i] * factor * (double)w[i]);
}

static void ref_rope(float *x, uint32_t heads, uint32_t head_dim, const float *cos,
                     const float *sin, uint32_t pairs)
{
    for (uint32_t h = 0; h < heads; h++, x += head_dim) {
        for (uint32_t i = 0; i < pairs; i++) {
            double a = (double)x[2 * i], b = (double)x[2 * i + 1];
            double c = (double)cos[i], s = (double)sin[i];
            x[2 * i] = (float)(a * c - b * s);
            x[2 * i + 1] = (float)(a * s + b * c);
        }
    }
}

static void ref_silu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double g = (double)gate[i];
        gate[i] = (float)(g / (1 + exp(-g)) * (double)up[i]);
    }
}

static void ref_gelu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double g = (double)gate[i];
        double inner = sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        gate[i] = (float)(0.5 * g * (1 + tanh(inner)) * (double)up[i]);
    }
}

static void ref_clamped_mul(float *gate, const float *up, uint32_t n)
{
    const double limit = (double)GATE_LIMIT, alpha = (double)GATE_ALPHA;
    for (uint32_t i = 0; i < n; i++) {
        double g = (double)gate[i] > limit ? limit : (double)gate[i]; /* NaN stays */
        double u = (double)up[i] > limit ? limit : (double)up[i] < -limit ? -limit : (double)up[i];
        gate[i] = (float)(g / (1 + exp(-alpha * g)) * (u + 1));
    }
}

static double soft_capped(double x, float cap)
{
    return (double)cap * tanh(x / (double)cap);
}

static void ref_soft_cap(float *x, float cap, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)soft_capped((double)x[i], cap);
}

/* Return the index of element (d, lane) of a K block and (lane, d) of a V block, see
 * kv_layout.h. */
static size_t k_index(uint32_t d, uint32_t lane)
{
    return (size_t)d * KV_BLOCK + lane;
}

static size_t v_index(uint32_t d, uint32_t lane)
{
    return ((size_t)(d / 16) * KV_BLOCK + lane) * 16 + d % 16;
}

static void put(enum kv_type type, char *block, size_t index, float value)
{
    if (type == KV_F32) {
        memcpy(block + index * sizeof value, &value, sizeof value);
    } else {
        uint16_t half = f32_to_f16(value);
        memcpy(block + index * sizeof half, &half, sizeof half);
    }
}

static double get_float(enum kv_type type, const char *block, size_t index)
{
    if (type == KV_F32) return (double)f32_from_bits(load_u32(block + index * sizeof(float)));
    return (double)f16_to_f32(load_u16(block + index * sizeof(uint16_t)));
}

static double k_value(const struct kv_layout *l, const char *k_block, uint32_t d, uint32_t lane)
{
    if (kv_groups(l) > 0) return (double)kv_code_k(l, k_block, d, lane);
    return get_float(l->type, k_block, k_index(d, lane));
}

static double v_value(const struct kv_layout *l, const char *v_block, uint32_t d, uint32_t lane)
{
    if (l->latent > 0) return k_value(l, v_block, d, lane);
    if (kv_groups(l) > 0) return (double)kv_code_v(l, v_block, d, lane);
    return get_float(l->type, v_block, v_index(d, lane));
}

static void ref_kv_put(const struct kv_layout *layout, const float *k, const float *v,
                       uint32_t lane, char *k_block, char *v_block)
{
    if (kv_groups(layout) > 0) {
        kv_code_put(layout, k, v, lane, k_block, v_block);
        return;
    }
    for (uint32_t d = 0; d < layout->head_dim; d++) {
        put(layout->type, k_block, k_index(d, lane), k[d]);
        if (layout->latent == 0) put(layout->type, v_block, v_index(d, lane), v[d]);
    }
}

static double score(const struct attend *a, const float *q, uint32_t position)
{
    const struct kv_layout *l = a->layout;
    const char *k = kv_block_at(l, a->head, a->page_bytes, a->page_table, position / KV_BLOCK);
    double sum = 0;
    for (uint32_t d = 0; d < l->head_dim; d++)
        sum += (double)q[d] * k_value(l, k, d, position % KV_BLOCK);
    sum *= (double)a->scale;
    return a->cap > 0 ? soft_capped(sum, a->cap) : sum;
}

static void attend_row(const struct attend *a, uint32_t row)
{
    const struct kv_layout *l = a->layout;
    const float *q = a->q + row / a->group * a->q_stride + row % a->group * l->head_dim;
    float *out = a->out + row / a->group * a->out_stride + row % a->group * a->out_head;
    uint32_t last = a->position + row / a->group;
    uint32_t first = a->window > 0 && last >= a->window ? last - a->window + 1 : 0;

    double top = a->sinks ? (double)a->sinks[row % a->group] : -HUGE_VAL;
    for (uint32_t p = first; p <= last; p++)
        top = fmax(top, score(a, q, p));
    double weights = a->sinks ? exp((double)a->sinks[row % a->group] - top) : 0;
    double sums[KV_HEAD_DIM_MAX] = { 0 };
    for (uint32_t p = first; p <= last; p++) {
        double weight = exp(score(a, q, p) - top);
        const char *v = kv_block_at(l, a->head, a->page_bytes, a->page_table, p / KV_BLOCK) +
                        (l->latent > 0 ? 0 : kv_half_bytes(l));
        weights += weight;
        for (uint32_t d = 0; d < kv_value_dim(l); d++)
            sums[d] += weight * v_value(l, v, d, p % KV_BLOCK);
    }
    for (uint32_t d = 0; d < kv_value_dim(l); d++)
        out[d] = (float)(sums[d] / weights);
}

static void ref_attend(const struct attend *a, void *scratch)
{
    (void)scratch;
    for (uint32_t r = 0; r < a->row_count; r++)
        attend_row(a, a->row_first + r);
}

const struct ops op_ref = {
    .name = "ref",
    .numerics = "ref-1",
    .about = "plain C in double precision: any processor, slow",
    .supported = supported,
    .gemm = ref_gemm,
    .rms_norm = ref_rms_norm,
    .rope = ref_rope,
    .silu_mul = ref_silu_mul,
    .gelu_mul = ref_gelu_mul,
    .clamped_mul = ref_clamped_mul,
    .soft_cap = ref_soft_cap,
    .kv_put = ref_kv_put,
    .attend_rows = ATTEND_ROWS_MAX,
    .attend = ref_attend,
};
#ifdef MUSTER_X86
#    include <cpuid.h>
#    include <sys/syscall.h>
#    include <unistd.h>

/* Asks CPUID, because __builtin_cpu_supports does not know "f16c" in every compiler. For the other
 * sets that function also asks the operating system whether it saves the registers. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

bool op_avx2_supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

/* Of EAX of leaf 7, subleaf 1, which processors without it answer with 0. */
#    define AVX_VNNI_BIT (1u << 4)

bool op_avx2_vnni_supported(void)
{
    unsigned eax, ebx, ecx, edx;
    return op_avx2_supported() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) &&
           (eax & AVX_VNNI_BIT) != 0;
}

bool op_avx512_supported(void)
{
    return op_avx2_supported() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

bool op_avx512_vnni_supported(void)
{
    return op_avx512_supported() && __builtin_cpu_supports("avx512vnni");
}

bool op_avx512_bf16_supported(void)
{
    return op_avx512_vnni_supported() && __builtin_cpu_supports("avx512bf16");
}

#    define AMX_TILE_BIT (1u << 24) /* of EDX of leaf 7 */
#    define AMX_INT8_BIT (1u << 25)
#    define AMX_BF16_BIT (1u << 22)
#    define AMX_BITS (AMX_TILE_BIT | AMX_INT8_BIT | AMX_BF16_BIT)
#    define ARCH_REQ_XCOMP_PERM 0x1023 /* asm/prctl.h of Linux 5.16 */
#    define XFEATURE_XTILEDATA 18

/* The registers of tiles take 8 KB of a thread's state: Linux keeps them for processes that ask. Asking again
 * is harmless; a kernel that is older, or forbids the call, says no. */
bool op_amx_supported(void)
{
    unsigned eax, ebx, ecx, edx;
    if (!op_avx512_bf16_supported() || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        return false;
    if ((edx & AMX_BITS) != AMX_BITS) return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

#endif
#ifdef MUSTER_NEON
#    include <asm/hwcap.h>
#    include <sys/auxv.h>

bool op_neon_supported(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
}

bool op_neon_dotprod_supported(void)
{
    return op_neon_supported() && (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

#endif
const struct ops *const ops_table[] = {
#ifdef MUSTER_X86
    &op_amx,          &op_avx512_bf16,
    &op_avx512_vnni,  &op_avx512,
    &op_avx2_vnni,    &op_avx2,
#endif
#ifdef MUSTER_NEON
    &op_neon_dotprod, &op_neon,
#endif
    &op_ref,          NULL,
};

const struct ops *ops_best(void)
{
    const struct ops *const *row = ops_table;
    while (!(*row)->supported())
        row++; /* ends at op_ref */
    return *row;
}

const struct ops *ops_find(struct str name)
{
    for (const struct ops *const *row = ops_table; *row; row++)
        if (str_eq(str_from((*row)->name), name)) return *row;
    return NULL;
}
