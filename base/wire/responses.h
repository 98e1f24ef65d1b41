/* responses.h - rewrites requests of /v1/responses (OpenAI's Responses API) as chat requests.
 *
 * Layer:    base/wire (base/core)
 * Threads:  any; a call keeps nothing
 * Lifetime: the chat body and the repeated members live in the arena, as long as it does
 * Rules:    (1) what a key means and its range are openai.c's: numbers are copied as they stand
 *           (2) nothing is stored: what would need the state of an earlier response is refused by name
 *           (3) kinds of items, parts and tools that are not served are refused by name; unknown keys of the body
 *               are ignored, as on OpenAI's other paths
 *
 *     instructions                  the first message, of the system
 *     input: a text                 a message of the user
 *     messages, their parts         messages; texts joined by a line break
 *     reasoning items               reasoning_content of the message or the calls behind them
 *     function_call(_output)        tool_calls of one message, messages of the tool
 *     tools, tool_choice            tools, tool_choice
 *     text.format                   response_format
 *     reasoning.effort              reasoning_effort
 *     max_output_tokens             max_tokens
 *
 * Reference: the types of OpenAI's Python client (openai.types.responses)
 */
#pragma once
#include "base/wire/openai.h"

#define RESPONSES_CHAT_BYTES_MAX ((size_t)32 << 20) /* of the chat body that is made */
#define RESPONSES_ITEMS_MAX OPENAI_MESSAGES_MAX     /* of the input */
#define RESPONSES_PARTS_MAX OPENAI_PARTS_MAX        /* of one item */

/* Makes the body of a chat request, and the members that the response repeats: JSON, each with a comma before
 * it. Both are written only on success. -EINVAL for a mistake of the client, -E2BIG beyond
 * RESPONSES_CHAT_BYTES_MAX, -ENOMEM: in all cases `e` is complete. */
int responses_to_chat(struct str body, struct arena *arena, struct str *ret_chat,
                      struct str *ret_repeated, struct openai_error *e);
