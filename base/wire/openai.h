/* openai.h - parses requests of /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/score and /v1/rerank,
 * and writes error objects.
 *
 * Layer:    base/wire (base/core)
 * Lifetime: everything in openai_request points into the body or the arena; it lives while both do
 * Rules:    (1) every number has its range in one table (openai.c)
 *           (2) null means the default; a repeated key is refused
 *           (3) items of lists and objects are counted: the bounds below hold, and JSON_KEYS_MAX and
 *               JSON_DEPTH_MAX for all JSON (kwargs, schemas of tools, metadata); more is -EINVAL
 *               with a sentence that names the key and the bound
 *           (4) unknown keys are ignored, as OpenAI does. Known keys that are not served but would
 *               change the output (suffix, audio ...) are refused by name
 *           (5) a grammar may be asked for in OpenAI's way (response_format) and in vLLM's, SGLang's
 *               and llama.cpp's own; one in a request. It is not compiled here
 */
#pragma once
#include "base/core/arena.h"
#include "base/core/buf.h"
#include "base/core/err.h"
#include "base/grammar/grammar.h"
#include "base/wire/sampling.h"

#define OPENAI_STOP_MAX 16        /* stop strings */
#define OPENAI_STOP_BYTES_MAX 256 /* of one */
#define OPENAI_MODEL_BYTES_MAX 256
#define OPENAI_USER_BYTES_MAX 512
#define OPENAI_GROUP_BYTES_MAX 512
#define OPENAI_MESSAGES_MAX 4096
#define OPENAI_PARTS_MAX 1024 /* of one message's content */
#define OPENAI_TOOLS_MAX 512
#define OPENAI_EFFORT_BYTES_MAX 32 /* of reasoning_effort */
#define OPENAI_PROMPT_IDS_MAX (1u << 20)
#define OPENAI_TOKENS_MAX INT32_MAX      /* of max_tokens; the context bounds it further, later */
#define OPENAI_CHOICES_MAX 64            /* outputs generated for one request */
#define OPENAI_BIASES_MAX 512            /* tokens in logit_bias */
#define OPENAI_BIAS_MAX 100              /* of one, either way */
#define OPENAI_TOP_LOGPROBS_MAX 20       /* of a chat; as OpenAI's */
#define OPENAI_COMPLETION_LOGPROBS_MAX 5 /* of a completion; as OpenAI's */
#define OPENAI_TEXTS_MAX 2048            /* prompts whose vectors a request asks for; as OpenAI's */
#define OPENAI_SALT_BYTES_MAX 128        /* of cache_salt */
#define OPENAI_COMPLETION_TOKENS 16 /* max_tokens of /v1/completions when absent, as OpenAI's */

enum openai_surface {
    OPENAI_CHAT,       /* /v1/chat/completions */
    OPENAI_COMPLETION, /* /v1/completions */
    OPENAI_EMBED,      /* /v1/embeddings; from here on texts become vectors and no output */
    OPENAI_SCORE,      /* /v1/score */
    OPENAI_RERANK,     /* /v1/rerank */
};

struct openai_prompt {
    struct str text;
    const uint32_t *ids; /* NULL: it is a text */
    uint32_t id_count;
};

/* Says how the vectors of a request's prompts are used. Of a score the prompts are those of text_1, then
 * those of text_2; of a ranking the query, then the documents. */
struct openai_vectors {
    uint32_t first_count;  /* prompts of text_1, one or as many as of text_2 */
    uint32_t dimensions;   /* that are kept; 0: all */
    uint32_t top_n;        /* documents that are told, the best first; 0: all */
    bool base64;           /* vectors as float32, little-endian, in base64; else numbers */
    bool return_documents; /* with their texts */
    struct str cache_salt; /* keeps the pages of a tenant apart, in a router's call; empty: none */
};

enum openai_tool_choice {
    OPENAI_TOOLS_AUTO,
    OPENAI_TOOLS_NONE,
    OPENAI_TOOLS_REQUIRED, /* at least one call, of `tool_only` where it is not empty */
};

struct openai_request {
    enum openai_surface surface;
    struct str model; /* empty: absent, which means the service's only model */
    struct str user;
    struct str group; /* prompt_cache_key: shared by requests that begin alike; or empty */

    /* chat */
    struct str messages;             /* JSON array; each has a role; content parts are joined */
    struct str tools;                /* JSON array, or empty (also for tool_choice "none") */
    struct str chat_template_kwargs; /* JSON object, or empty; reasoning_effort is put into it */
    enum openai_tool_choice tool_choice;
    struct str tool_only;        /* the tool that must be called; empty: any */
    bool no_parallel_tool_calls; /* one call in an answer at most */

    /* Contents of the last message that has text, of the assistant's last, and of the last of "system"
     * or "developer". They point into `messages`, still escaped; data NULL: there is none. */
    struct str last_text, last_answer, last_system;

    /* completion: the prompts, and the one that this request is about (the first, after parsing): text,
     * or ids when prompt_ids is not NULL */
    const struct openai_prompt *prompts;
    uint32_t prompt_count; /* at least 1, also for a chat */
    struct str prompt;
    const uint32_t *prompt_ids;
    uint32_t prompt_id_count;
    uint32_t n;       /* outputs for each prompt, at least 1 */
    uint32_t best_of; /* generated for each prompt, of which the n likeliest are sent; at least n */
    bool echo;        /* the output begins with the prompt */

    struct openai_vectors vectors; /* of embeddings, scores and rankings */

    struct grammar_spec grammar;
    const char *grammar_key; /* of the body that asks for it; NULL: none */

    struct sampling sampling;
    const struct token_value *logit_bias; /* each id once; not checked against a vocabulary */
    uint32_t bias_count;
    bool logprobs;         /* of each token of the output, and of the prompt with echo */
    uint32_t top_logprobs; /* the likeliest tokens beside it */
    /* prompt_logprobs: those of the prompt, in a list of their own; not in a stream. */
    bool scores_prompt;
    uint32_t prompt_top; /* the likeliest tokens beside each of it */
    uint32_t max_tokens; /* 0: absent (chat only), as far as the context reaches */
    /* completion: max_tokens is 0, so no token is generated; max_tokens is set to 1 */
    bool prompt_only;
    uint32_t min_tokens;
    uint32_t think_max; /* of a chat: tokens of its reasoning; 0: no limit */
    const struct str *stop;
    uint32_t stop_count;
    bool ignore_eos;

    bool stream;
    bool include_usage; /* stream_options.include_usage */
};

/* The problems that an error object can report, each with its HTTP status, type and code. */
enum openai_problem {
    OPENAI_INVALID,            /* 400 invalid_request_error */
    OPENAI_UNSUPPORTED,        /* 400 invalid_request_error, unsupported_parameter */
    OPENAI_CONTEXT_LENGTH,     /* 400 invalid_request_error, context_length_exceeded */
    OPENAI_UNAUTHENTICATED,    /* 401 authentication_error, invalid_api_key */
    OPENAI_FORBIDDEN,          /* 403 permission_error */
    OPENAI_MODEL_NOT_FOUND,    /* 404 not_found_error, model_not_found */
    OPENAI_URL_NOT_FOUND,      /* 404 not_found_error, unknown_url */
    OPENAI_METHOD_NOT_ALLOWED, /* 405 invalid_request_error, method_not_allowed */
    OPENAI_DEADLINE,           /* 408 timeout_error, deadline_exceeded */
    OPENAI_TOO_LARGE,          /* 413 invalid_request_error, request_too_large */
    OPENAI_CONTENT_TYPE,       /* 415 invalid_request_error, unsupported_content_type */
    OPENAI_POISONOUS,          /* 422 invalid_request_error, request_crashes_engines */
    OPENAI_RATE_LIMIT,         /* 429 rate_limit_error, rate_limit_exceeded */
    OPENAI_OVERLOADED,         /* 429 rate_limit_error, overloaded: a queue is full */
    OPENAI_INTERNAL,           /* 500 server_error */
    OPENAI_UPSTREAM,           /* 502 server_error, upstream_failed */
    OPENAI_UNAVAILABLE,        /* 503 unavailable_error, no_instance */
    OPENAI_LOADING,            /* 503 unavailable_error, loading */
    OPENAI_PROBLEM_COUNT
};

#define OPENAI_PARAM_BYTES_MAX 64

struct openai_error {
    int status;
    const char *type;
    const char *code;                       /* NULL is written as null */
    char param[OPENAI_PARAM_BYTES_MAX + 1]; /* "" is written as null; longer names are cut */
    char message[ERR_TEXT_MAX];
};

/* Fills `e` and returns `rc`, so that a caller can `return openai_error_set(e, -EINVAL, ...)`.
 * `param` may be NULL. */
int openai_error_set(struct openai_error *e, int rc, enum openai_problem problem, const char *param,
                     const char *format, ...) __attribute__((format(printf, 5, 6), cold));

/* Appends {"error":{"message","type","param","code"}}. */
int openai_error_render(const struct openai_error *e, struct buf *out);

/* Parses and checks `body`. -EINVAL for a mistake of the client and -ENOMEM when the arena is
 * full: in both cases `e` is complete. *ret is written only on success. */
int openai_parse(enum openai_surface surface, struct str body, struct arena *arena,
                 struct openai_request *ret, struct openai_error *e);

/* Makes `q` about one of its prompts. */
void openai_prompt_select(struct openai_request *q, uint32_t index);

/* Returns true if the request asks for vectors of texts, or what is made of them: nothing is generated, and
 * the request as a whole counts as one output. */
static inline bool openai_wants_vectors(enum openai_surface surface)
{
    return surface >= OPENAI_EMBED;
}

/* Returns the outputs that are generated for a request. The output at `at` is for the prompt at / best_of;
 * its seed is the request's and at % best_of, so that the first is that of a request for one. */
static inline uint32_t openai_outputs(const struct openai_request *q)
{
    return openai_wants_vectors(q->surface) ? 1 : q->best_of * q->prompt_count;
}

/* Returns the surface of a path of embeddings, scores or rankings; OPENAI_CHAT: it is none. */
enum openai_surface openai_vectors_surface(struct str path);
