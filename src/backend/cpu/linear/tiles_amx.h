// Tile instructions. Internal to each file that includes it. A thread configures its tiles before
// it uses them and releases them afterwards; tile numbers are constants.
#pragma once

#include <cstdint>

// Written in assembly: the intrinsics of GCC 12 do not say what they read from memory (its
// _tile_loadconfig declares 8 of 64 bytes, its _tile_loadd none), so that stores before them may
// come too late.
#define TILE_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory")
#define TILE_RELEASE() __asm__ volatile("tilerelease" : : :)
#define TILE_LOAD(tile, at, step) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(at), "r"(step), "i"(tile) : "memory")
#define TILE_STORE(tile, at, step) \
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(at), "r"(step), "i"(tile) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile) :)
#define TILE_MULTIPLY_ADD_BF16(sum, x, w) \
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(w) :)
#define TILE_MULTIPLY_ADD_INT8(sum, x, w) /* signed times signed */ \
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(x), "i"(w) :)

namespace zipage::cpu {
namespace {

// Palette 1: eight tiles of 16 rows x 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

}  // namespace
}  // namespace zipage::cpu
