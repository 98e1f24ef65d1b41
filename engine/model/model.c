/* model.c - loads a model: file, architecture, weights, vocabulary, identity. */
#include "engine/model/model.h"

#include "base/core/fault.h"
#include "engine/files/gguf_shards.h"
#include "engine/files/hf_folder.h"
#include "engine/files/hf_model.h"
#include "engine/files/vocab_gguf.h"
#include "engine/model/arch.h"
#include "engine/model/model_sampling.h"
#include "engine/model/weight_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define MODEL_ARENA_BYTES_MAX ((size_t)64 << 20) /* names, template, layer tables; not weights */

const struct model_arch *const arch_table[] = {
    &arch_llama, &arch_qwen2,      &arch_qwen3,       &arch_qwen3moe, &arch_smollm3,
    &arch_phi3,  &arch_gemma2,     &arch_gemma3,      &arch_gpt_oss,  &arch_deepseek2,
    &arch_bert,  &arch_nomic_bert, &arch_modern_bert, NULL,
};

static int choose_kernels(struct model *m, const char *name, struct err *err)
{
    m->ops = name ? ops_find(str_from(name)) : ops_best();
    if (!m->ops) {
        char known[128] = "";
        for (const struct ops *const *row = ops_table; *row; row++) {
            size_t len = strlen(known);
            snprintf(known + len, sizeof known - len, "%s%s", len ? ", " : "", (*row)->name);
        }
        return err_set(err, -EINVAL, "kernels '%s' are unknown; there are: %s", name, known);
    }
    if (!m->ops->supported())
        return err_set(err, -ENOTSUP, "kernels '%s' (%s): this processor lacks the instructions",
                       m->ops->name, m->ops->about);
    return 0;
}

static int choose_arch(struct model *m, const struct gguf *g, struct err *err)
{
    struct str name;
    int rc = gguf_get_str(g, "general.architecture", &name, err);
    if (rc < 0) return rc == -ENOENT ? -EINVAL : rc;
    for (const struct model_arch *const *row = arch_table; *row; row++) {
        if (!str_eq(str_from((*row)->name), name)) continue;
        m->arch = *row;
        m->info.architecture = str_from((*row)->name);
        return 0;
    }
    char known[256] = "";
    for (const struct model_arch *const *row = arch_table; *row; row++) {
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", len ? ", " : "", (*row)->name);
    }
    return err_set(err, -ENOTSUP, STR_FMT ": architecture '" STR_FMT "' is unknown; there are: %s",
                   STR_ARG(g->file), STR_ARG(name), known);
}

static struct str base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return str_from(slash ? slash + 1 : path);
}

static bool has_bf16(const struct gguf *g)
{
    for (uint32_t i = 0; i < g->tensor_count; i++)
        if (g->tensors[i].type == WEIGHT_BF16) return true;
    return false;
}

/* Copies the name and the chat template, whose files are freed after loading, and fills in what
 * follows from vocabulary, kernels, storage type and geometry. */
static int read_identity(struct model *m, const struct gguf *g, const char *path, struct str source,
                         struct err *err)
{
    struct model_info *info = &m->info;
    struct str name = base_name(path);
    int rc = gguf_get_str(g, "general.name", &name, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    info->name = arena_str(&m->arena, name);
    info->template_source = arena_str(&m->arena, source);
    if (!info->name.data || !info->template_source.data)
        return err_set(err, -ENOMEM, "%s: no memory", path);
    info->vocab = m->vocab;
    info->kernels = str_from(m->ops->name);
    const struct kv_layout block = kv_layout_of(m, KV_BLOCK);
    info->kv_bytes_per_token =
        (size_t)block.n_layers * block.n_kv_heads * kv_head_bytes(&block) / KV_BLOCK;
    info->weight_bytes = m->weights_bytes;
    snprintf(info->numerics, sizeof info->numerics, "%s%s+kv-%s%s", m->ops->numerics,
             m->ops->bf16 && has_bf16(g) ? m->ops->bf16 : "",
             block.n_layers == 0 ? "none" : kv_type_name(m->kv_type),
             block.latent > 0 ? "-latent" : "");
    return 0;
}

/* Loads weights and geometry; the digest is there. */
static int load(struct model *m, const struct gguf *g, const struct gguf_source *source,
                const struct model_load_options *opt, struct err *err)
{
    struct loader loader;
    const struct weight_cache cache = { opt->weight_cache, opt->weight_cache_bytes_max };
    int rc = loader_init(&loader, g, source, &cache, m, err);
    if (rc < 0) return rc;
    loader.arch = m->arch->name;
    rc = m->arch->load(&loader, m, err);
    return rc < 0 ? rc : loader_end(&loader, err);
}

/* Computes the digest of all that is loaded, or takes it from the cache, which knows it of these files. */
static int find_digest(struct model *m, const struct gguf_source *source, bool is_folder,
                       const struct model_load_options *opt, struct err *err)
{
    const char *cache = opt->weight_cache;
    char *digest = m->info.digest;
    if (cache && weight_digest_tell(cache, source->identity, digest)) return 0;
    int rc = is_folder ? hf_folder_digest(source->name, &opt->watch, digest, err)
                       : gguf_digest(source, digest, err);
    if (rc == 0 && cache) weight_digest_keep(cache, source->identity, digest);
    return rc;
}

static int load_gguf(struct model *m, const char *path, const struct model_load_options *opt,
                     struct err *err)
{
    CLEANUP(gguf_shards_freep) struct gguf_shards *file = NULL;
    struct gguf_watched watched;
    struct str source = { "", 0 };
    int rc = gguf_shards_open(path, &file, err);
    if (rc == 0) rc = choose_arch(m, file->gguf, err);
    if (rc == 0) gguf_watched_init(&watched, file->source, &opt->watch);
    if (rc == 0) rc = find_digest(m, &watched.source, false, opt, err);
    if (rc == 0) rc = load(m, file->gguf, &watched.source, opt, err);
    if (rc == 0) rc = vocab_from_gguf(file->gguf, &m->vocab, err);
    if (rc == 0 && !opt->no_sampling) rc = model_sampling_gguf(file->gguf, &m->info.sampling, err);
    if (rc < 0) return rc;
    if (m->vocab && vocab_count(m->vocab) != m->info.vocab_size)
        return err_set(err, -EINVAL, "%s: %u tokens in the vocabulary, %u rows of weights", path,
                       vocab_count(m->vocab), m->info.vocab_size);
    rc = gguf_get_str(file->gguf, "tokenizer.chat_template", &source, err);
    return rc == 0 || rc == -ENOENT ? read_identity(m, file->gguf, path, source, err) : rc;
}

static int load_hf(struct model *m, const char *path, const struct model_load_options *opt,
                   struct err *err)
{
    CLEANUP(hf_model_freep) struct hf_model *file = NULL;
    CLEANUP(chat_template_freep) struct chat_template *template = NULL;
    struct gguf_watched watched;
    int rc = hf_model_open(path, &file, err);
    if (rc == 0) rc = choose_arch(m, file->gguf, err);
    if (rc == 0) gguf_watched_init(&watched, file->source, &opt->watch);
    if (rc == 0) rc = find_digest(m, &watched.source, true, opt, err);
    if (rc == 0) rc = load(m, file->gguf, &watched.source, opt, err);
    if (rc == 0) rc = hf_model_tokenizer(file, &m->vocab, &template, err);
    if (rc == 0 && !opt->no_sampling)
        rc = model_sampling_folder(file->source->name, &m->info.sampling, err);
    if (rc < 0) return rc;
    const struct str source = template ? chat_template_source(template) : STR("");
    return read_identity(m, file->gguf, file->source->name, source, err);
}

static int load_once(const char *path, const struct model_load_options *opt, struct model **ret,
                     struct err *err)
{
    CLEANUP(model_freep) struct model *m = calloc(1, sizeof *m);
    if (!m) return err_set(err, -ENOMEM, "%s: no memory", path);
    arena_init(&m->arena, MODEL_ARENA_BYTES_MAX);
    m->kv_type = opt->kv_type;
    m->info.sampling.unnamed = SAMPLING_ALL;
    m->no_sampling = opt->no_sampling;
    m->path = arena_str(&m->arena, str_from(path));
    if (!m->path.data) return err_set(err, -ENOMEM, "%s: no memory", path);
    int rc = choose_kernels(m, opt->kernels, err);
    if (rc == 0) rc = hf_model_is(path) ? load_hf(m, path, opt, err) : load_gguf(m, path, opt, err);
    if (rc == 0) *ret = TAKE(m);
    return rc;
}

int model_load(const char *path, const struct model_load_options *opt, struct model **ret,
               struct err *err)
{
    static const struct model_load_options defaults = { 0 };
    if (!opt) opt = &defaults;
    int rc = load_once(path, opt, ret, err);
    /* Packed weights of another version of the loader are gone now. */
    return rc == -ESTALE ? load_once(path, opt, ret, err) : rc;
}

void model_sleep(struct model *m)
{
    if (m->weight_file)
        weight_file_expect(m->weight_file, false);
    else
        must(madvise(m->own_weights, m->weights_bytes, MADV_DONTNEED) == 0);
}

/* Weights in a file of their own are mapped all the time. Else the model is loaded once more, and the new
 * weights move to where the old ones were: pointers to them, which an architecture keeps in its own tables,
 * stay right, because the same file is packed in the same order. */
int model_wake(struct model *m, struct err *err)
{
    const struct model_load_options opt = { .kv_type = m->kv_type,
                                            .no_sampling = m->no_sampling,
                                            .kernels = m->ops->name };
    CLEANUP(model_freep) struct model *again = NULL;
    if (m->weight_file) {
        weight_file_expect(m->weight_file, true);
        return 0;
    }
    int rc = model_load(m->path.data, &opt, &again, err);
    if (rc < 0) return rc;
    if (strcmp(again->info.digest, m->info.digest) != 0 || again->weights_bytes != m->weights_bytes)
        return err_set(err, -EINVAL, "%s is another model now than the one that went to sleep",
                       m->path.data);
    if (mremap(again->own_weights, m->weights_bytes, m->weights_bytes,
               MREMAP_MAYMOVE | MREMAP_FIXED, m->own_weights) == MAP_FAILED)
        return err_set(err, -errno, "%s: cannot move the weights to their place", m->path.data);
    again->own_weights = NULL;
    return 0;
}

void model_free(struct model *m)
{
    if (!m) return;
    vocab_free(m->vocab);
    if (m->own_weights) munmap(m->own_weights, m->weights_bytes);
    weight_file_close(m->weight_file);
    arena_fini(&m->arena);
    free(m);
}

const struct model_info *model_info(const struct model *m)
{
    return &m->info;
}

/* Returns a sign from the top bit of a multiplicative hash (Knuth): those of neighbours are
 * unrelated. */
static float sign_of(uint32_t i)
{
    return (i * 2654435761u ^ (i * 40503u) >> 7) & 0x80000000u ? -1.0f : 1.0f;
}

void hidden_fold(const float *x, uint32_t count, float ret[MODEL_HIDDEN])
{
    memset(ret, 0, MODEL_HIDDEN * sizeof *ret);
    for (uint32_t i = 0; i < count; i++)
        ret[i % MODEL_HIDDEN] += sign_of(i) * x[i];
}
