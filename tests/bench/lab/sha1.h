/* SHA-1 of a short text (FIPS 180-4), for the WebSocket handshake. */
#include <stdint.h>
#include <string.h>

static void sha1(const unsigned char *text, size_t size, unsigned char digest[20]) {
    uint32_t h[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0}, w[80];
    unsigned char block[128] = {0};
    size_t blocks = (size + 9 + 63) / 64;
    memcpy(block, text, size);
    block[size] = 0x80;
    for (int i = 0; i < 8; i++) block[blocks * 64 - 1 - i] = (uint64_t)size * 8 >> 8 * i;
    for (size_t b = 0; b < blocks; b++) {
        for (int i = 0; i < 16; i++)
            w[i] = block[b * 64 + i * 4] << 24 | block[b * 64 + i * 4 + 1] << 16 | block[b * 64 + i * 4 + 2] << 8 |
                   block[b * 64 + i * 4 + 3];
        for (int i = 16; i < 80; i++) {
            uint32_t x = w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16];
            w[i] = x << 1 | x >> 31;
        }
        uint32_t a = h[0], c1 = h[1], c = h[2], d = h[3], e = h[4];
        for (int i = 0; i < 80; i++) {
            uint32_t f = i < 20   ? (c1 & c) | (~c1 & d)
                         : i < 40 ? c1 ^ c ^ d
                         : i < 60 ? (c1 & c) | (c1 & d) | (c & d)
                                  : c1 ^ c ^ d;
            uint32_t k = i < 20 ? 0x5A827999 : i < 40 ? 0x6ED9EBA1 : i < 60 ? 0x8F1BBCDC : 0xCA62C1D6;
            uint32_t next = (a << 5 | a >> 27) + f + e + k + w[i];
            e = d, d = c, c = c1 << 30 | c1 >> 2, c1 = a, a = next;
        }
        h[0] += a, h[1] += c1, h[2] += c, h[3] += d, h[4] += e;
    }
    for (int i = 0; i < 20; i++) digest[i] = h[i / 4] >> (24 - i % 4 * 8);
}
