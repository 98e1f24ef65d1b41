/* anthropic.h - rewrites requests of /v1/messages (Anthropic's Messages API) as chat requests.
 *
 * Layer:    base/wire (base/core)
 * Threads:  any; a call keeps nothing
 * Lifetime: the chat body lives in the arena, as long as it does
 * Rules:    (1) what a key means and its range are openai.c's: numbers are copied as they stand
 *           (2) an unknown key of the body, an unknown kind of block and every known one that is not served
 *               are refused by name: output for another request is worse than none
 *           (3) cache_control, signature, citations and other notes inside blocks and tools are ignored: the
 *               prefix cache needs no marks, and no output depends on them
 *
 *     system                      the first message, of the system
 *     text blocks                 one content, blocks joined by a line break
 *     thinking blocks             reasoning_content
 *     tool_use, tool_result       tool_calls, a message of the tool ("Error: " before the text with is_error)
 *     tools, tool_choice          tools, tool_choice, parallel_tool_calls
 *     stop_sequences              stop
 *     thinking, output_config     chat_template_kwargs (enable_thinking, reasoning_effort), response_format,
 *                                 thinking_token_budget
 *     metadata.user_id            user
 *
 * Reference: the types of Anthropic's Python client (anthropic.types.MessageCreateParams)
 */
#pragma once
#include "base/wire/openai.h"

#define ANTHROPIC_CHAT_BYTES_MAX ((size_t)32 << 20) /* of the chat body that is made */
#define ANTHROPIC_BLOCKS_MAX OPENAI_PARTS_MAX       /* of one message, and of one tool result */

enum anthropic_ask {
    ANTHROPIC_MESSAGES, /* /v1/messages */
    ANTHROPIC_COUNT,    /* /v1/messages/count_tokens: the same without max_tokens */
};

/* Makes the body of a chat request; *ret is written only on success. -EINVAL for a mistake of the client, -E2BIG
 * beyond ANTHROPIC_CHAT_BYTES_MAX, -ENOMEM: in all cases `e` is complete. */
int anthropic_to_chat(enum anthropic_ask ask, struct str body, struct arena *arena, struct str *ret,
                      struct openai_error *e);
