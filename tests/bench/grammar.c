/* grammar.c - measures grammars: the time to compile one, and the time of a token's mask.
 *
 *     cmake --build build -t bench_grammar
 *     build/tests/bench/bench_grammar VOCAB.gguf
 *
 * VOCAB.gguf is any model or vocabulary file. For each grammar an output is drawn from the masks, token by
 * token; "new" masks are walked, "kept" ones found by their state. Each grammar runs five times on fresh
 * automata; figures are processor time, medians over the runs, but for the slowest mask, which is of all. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "base/grammar/matcher.h"
#include "tests/unit/text/gguf_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define RUNS 5
#define OUTPUT_TOKENS 400

static const struct {
    const char *name;
    enum grammar_kind kind;
    const char *text;
} grammars[] = {
    { "any JSON object", GRAMMAR_JSON_OBJECT, "" },
    { "schema of four members", GRAMMAR_JSON_SCHEMA,
      "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":40},"
      "\"age\":{\"type\":"
      "\"integer\",\"minimum\":0,\"maximum\":130},\"mail\":{\"type\":\"string\",\"format\":"
      "\"email\"},\"tags\":{"
      "\"type\":\"array\",\"items\":{\"enum\":[\"new\",\"old\",\"vip\"]}}},\"required\":[\"name\","
      "\"age\","
      "\"mail\",\"tags\"],\"additionalProperties\":false}" },
    { "recursive schema", GRAMMAR_JSON_SCHEMA,
      "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"text\":{\"type\":\"string\"},"
      "\"more\":{\"type\":"
      "\"array\",\"items\":{\"$ref\":\"#/$defs/"
      "n\"}}},\"required\":[\"text\",\"more\"]}},\"$ref\":\"#/$defs/n\"}" },
    { "regex", GRAMMAR_REGEX, "([A-Z][a-z]{1,12} ){3,40}[0-9]{4}-[0-9]{2}" },
    { "GBNF of arithmetic", GRAMMAR_GBNF,
      "root ::= sum (\" = \" sum)*\nsum ::= term ([-+] term)*\nterm ::= atom ([*/] atom)*\n"
      "atom ::= [0-9]{1,9} | [a-z]+ | \"(\" sum \")\"\n" },
};

struct figures {
    double compile_us[RUNS], new_us[RUNS], kept_us[RUNS];
    double slowest_us;
    uint64_t masks_made, tokens;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double median(double *v)
{
    qsort(v, RUNS, sizeof *v, compare);
    return v[RUNS / 2];
}

/* Draws an allowed token, each alike. Returns UINT32_MAX if there is none. */
static uint32_t draw(struct rng *rng, const uint64_t *mask, uint32_t vocab_size)
{
    uint32_t pick = UINT32_MAX, seen = 0;
    for (uint32_t i = 0; i < vocab_size; i++)
        if (mask_has(mask, i) && rng_below(rng, ++seen) == 0) pick = i;
    return pick;
}

#define KEPT_CALLS 10000

/* The time to find a mask that was made: too short to be timed alone. */
static double kept_mask_us(struct matcher *t)
{
    const uint64_t *mask;
    double from = now_us();
    for (uint32_t i = 0; i < KEPT_CALLS; i++)
        must(matcher_mask(t, &mask) == 0);
    return (now_us() - from) / KEPT_CALLS;
}

static void run(size_t which, uint32_t round, const struct vocab *v, const struct token_trie *trie,
                struct figures *f)
{
    struct grammar *g = NULL;
    struct automaton *m = NULL;
    struct matcher t;
    struct rng rng;
    struct err err = { "" };
    double made_us = 0, from;
    uint32_t made = 0, kept = 0;
    const struct grammar_spec spec = { grammars[which].kind, str_from(grammars[which].text) };
    from = now_us();
    if (grammar_compile(&spec, &g, &err) < 0) {
        fprintf(stderr, "%s: %s\n", grammars[which].name, err.text);
        exit(1);
    }
    f->compile_us[round] = now_us() - from;
    must(automaton_new(g, trie, &m) == 0);
    rng_seed(&rng, round);
    must(matcher_init(&t, m) == 0);
    for (uint32_t i = 0; i < OUTPUT_TOKENS && !matcher_is_over(&t); i++) {
        const uint64_t *mask;
        bool had = matcher_has_mask(&t);
        from = now_us();
        must(matcher_mask(&t, &mask) == 0);
        double took = now_us() - from;
        if (!had) made_us += took;
        *(had ? &kept : &made) += 1;
        if (took > f->slowest_us) f->slowest_us = took;
        uint32_t id = draw(&rng, mask, trie->vocab_size);
        if (id == UINT32_MAX || matcher_advance(&t, vocab_bytes(v, id)) < 0) break;
    }
    f->new_us[round] = made_us / max_u32(made, 1);
    f->kept_us[round] = kept_mask_us(&t);
    f->masks_made += made;
    f->tokens += made + kept;
    matcher_fini(&t);
    automaton_free(m);
}

int main(int argc, char **argv)
{
    struct vocab *v = argc == 2 ? gguf_vocab_load(argv[1]) : NULL;
    struct token_trie *trie = NULL;
    if (!v) {
        fprintf(stderr, "usage: bench_grammar VOCAB.gguf\n");
        return 2;
    }
    uint32_t count = vocab_count(v);
    struct str *bytes = calloc(count, sizeof *bytes);
    must(bytes != NULL);
    for (uint32_t i = 0; i < count; i++)
        if (vocab_type(v, i) == TOKEN_NORMAL) bytes[i] = vocab_bytes(v, i);
    double from = now_us();
    must(token_trie_new(bytes, count, &trie) == 0);
    printf("%u tokens, %u nodes, built in %.1f ms\n", count, trie->node_count,
           (now_us() - from) * 1e-3);
    printf("%-24s %12s %14s %14s %14s %10s\n", "grammar", "compile us", "new mask us",
           "kept mask us", "slowest us", "new/all");
    for (size_t i = 0; i < COUNT_OF(grammars); i++) {
        struct figures f = { 0 };
        for (uint32_t round = 0; round < RUNS; round++)
            run(i, round, v, trie, &f);
        printf("%-24s %12.0f %14.1f %14.3f %14.0f %5llu/%llu\n", grammars[i].name,
               median(f.compile_us), median(f.new_us), median(f.kept_us), f.slowest_us,
               (unsigned long long)f.masks_made, (unsigned long long)f.tokens);
    }
    token_trie_free(trie);
    free(bytes);
    vocab_free(v);
    return 0;
}
