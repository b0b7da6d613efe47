// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011): a random number is a function of (key, counter), so that a draw depends on the request's
// seed and the token's index and on nothing else. Host and device code.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define ZIPAGE_PHILOX_FUNCTION __host__ __device__ constexpr
#else
#define ZIPAGE_PHILOX_FUNCTION constexpr
#endif

namespace zipage {

struct PhiloxCounter {
  uint32_t word[4];
};

ZIPAGE_PHILOX_FUNCTION PhiloxCounter philox4x32_10(PhiloxCounter counter,
                                                   uint32_t key_low,
                                                   uint32_t key_high) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = static_cast<uint64_t>(0xD2511F53u) * counter.word[0];
    const uint64_t b = static_cast<uint64_t>(0xCD9E8D57u) * counter.word[2];
    counter = {
        {static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key_low, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key_high, static_cast<uint32_t>(a)}};
    key_low += 0x9E3779B9u;   // golden ratio
    key_high += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return counter;
}

// The draw of output token `step` of a sequence with this seed: uniform in [0, 1), a multiple of
// 2^-53.
ZIPAGE_PHILOX_FUNCTION double philox_uniform(uint64_t seed, uint64_t step) {
  const PhiloxCounter out =
      philox4x32_10({{static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), 0, 0}},
                    static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const uint64_t bits = static_cast<uint64_t>(out.word[0]) << 21 ^ out.word[1] >> 11;
  return static_cast<double>(bits) * (1.0 / 9007199254740992.0);
}

// A seed of its own for each of the n sequences of a request, and for requests that give none.
ZIPAGE_PHILOX_FUNCTION uint64_t philox_derive_seed(uint64_t seed, uint64_t index) {
  const PhiloxCounter out =
      philox4x32_10({{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 1, 0}},
                    static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return static_cast<uint64_t>(out.word[0]) << 32 | out.word[1];
}

}  // namespace zipage
