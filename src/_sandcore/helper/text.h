/* Numbers as text, for what the kernel takes and gives in files. */
#ifndef SANDCORE_TEXT_H
#define SANDCORE_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum { TEXT_NUMBER = 21 }; /* twenty digits and the end */

/* The number in decimal, somewhere in out (TEXT_NUMBER bytes). */
const char *text_of(uint64_t number, char *out);

/* Puts a text, or a number in decimal, with its end where there is room; returns where that end is. */
char *text_put(char *at, const char *text);
char *text_put_number(char *at, uint64_t number);

/* The number at the start of a text that ends before `end`; *at is moved behind its digits. */
uint64_t text_take(const char **at, const char *end);

/* Writes a text to a file that is there, in a directory given by fd. Zero or a negative errno. */
int text_write(int directory, const char *name, const char *text, size_t size);

/* As text_write, a number. */
int text_write_number(int directory, const char *name, uint64_t number);

#endif
