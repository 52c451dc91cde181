// Stands in for libgcc_s.so.1 where scripts/wheels links, so that a wheel takes the unwinder of the process and not one that
// zig would link into it. A thread that Python ends as the interpreter exits is unwound by the process's, which calls back into ours: two
// unwinders do not understand each other's state, and the process would crash.
#define NAME(name) void name(void) {}
NAME(_Unwind_Backtrace)
NAME(_Unwind_DeleteException)
NAME(_Unwind_FindEnclosingFunction)
NAME(_Unwind_GetCFA)
NAME(_Unwind_GetDataRelBase)
NAME(_Unwind_GetIP)
NAME(_Unwind_GetIPInfo)
NAME(_Unwind_GetLanguageSpecificData)
NAME(_Unwind_GetRegionStart)
NAME(_Unwind_GetTextRelBase)
NAME(_Unwind_RaiseException)
NAME(_Unwind_Resume)
NAME(_Unwind_SetGR)
NAME(_Unwind_SetIP)
