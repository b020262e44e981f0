// What tests may ask of, and do to, the stand-in for a vendor's library, in their own process.
#pragma once

extern "C" {

// Its log so far, one line a call: "ncclReduce count=4 type=2 op=0 root=1".
const char* stub_calls();
void stub_set_version(int version);
// The next call of the function returns the code.
void stub_fail(const char* function, int code);
// From now on calls are taken and never end, or end with the code, or with wrong results.
void stub_hang();
void stub_fail_later(int code);
// As hang, and aborting does not end either.
void stub_get_stuck();
void stub_corrupt();
}
