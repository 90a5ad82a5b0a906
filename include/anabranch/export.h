// Marks the symbols that libanabranch exports; everything else stays hidden.
#ifndef ANABRANCH_EXPORT_H_
#define ANABRANCH_EXPORT_H_

#define ANABRANCH_EXPORT __attribute__((visibility("default")))

#endif  // ANABRANCH_EXPORT_H_
