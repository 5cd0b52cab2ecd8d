// Narrow numbers to float and back, rounded to nearest even.
#include <math.h>
#include <string.h>

#include "machine.h"

namespace emu {

static float as_float(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}

static uint32_t as_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, 4);
  return bits;
}

static float small(uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const uint32_t sign = bits >> (exponent_bits + mantissa_bits) & 1, top = (1u << exponent_bits) - 1;
  const uint32_t exponent = bits >> mantissa_bits & top, mantissa = bits & ((1u << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  float value;
  if (exponent == top && has_infinity)
    value = mantissa ? NAN : INFINITY;
  else if (!has_infinity && exponent == top && mantissa == (1u << mantissa_bits) - 1)
    value = NAN;
  else
    value = ldexpf((float)(exponent ? mantissa + (1u << mantissa_bits) : mantissa), (int)(exponent ? exponent : 1) - bias - mantissa_bits);
  return sign ? -value : value;
}

static const float* half_table() {
  static const std::vector<float> table = [] {
    std::vector<float> t(65536);
    for (uint32_t i = 0; i < 65536; ++i) t[i] = small(i, 5, 10, true);
    return t;
  }();
  return table.data();
}

float widen(Type type, uint32_t bits) {
  static const float* const halves = half_table();
  switch (type) {
    case Type::f16: return halves[bits & 0xffff];
    case Type::bf16: return as_float(bits << 16);
    case Type::tf32: return as_float(bits & 0xffffe000u);  // the hardware does not see the low 13 bits
    case Type::e4m3: return small(bits & 0xff, 4, 3, false);
    case Type::e5m2: return small(bits & 0xff, 5, 2, true);
  }
  return 0;
}

uint16_t narrow_f16(float f) {
  const uint32_t u = as_bits(f), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7fff);
  if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // below the normal numbers: units of 2^-24
    const float scaled = rintf(as_float(magnitude) * 16777216.0f);
    return (uint16_t)(sign | (uint32_t)scaled);
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000;
  return (uint16_t)(sign | rounded >> 13);
}

uint16_t narrow_bf16(float f) {
  const uint32_t u = as_bits(f);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

}  // namespace emu
