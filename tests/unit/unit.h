/* unit.h - cmocka behind the headers that it expects before it, whatever a formatter sorts. */
#pragma once
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
