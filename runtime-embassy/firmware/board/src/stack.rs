//! The maximum stack depth: the stack is filled with a pattern before the program starts;
//! overwritten words were used.
use cortex_m_rt::STACK_PAINT_VALUE;

unsafe extern "C" {
    /// The start of the stack, at its high end.
    static _stack_start: u32;
    /// The lowest address of the stack.
    static _stack_end: u32;
}

/// Returns the maximum number of bytes of stack that were used, including those of interrupts,
/// which use the same stack.
///
/// Cost: reads the unused part of the stack.
pub fn used_bytes() -> usize {
    let (top, bottom) = (&raw const _stack_start, &raw const _stack_end);
    let mut word = bottom;
    // SAFETY: the address is within the linker's stack region, which is aligned memory of the
    // board, and any value is a valid `u32`.
    while word < top && unsafe { word.read_volatile() } == STACK_PAINT_VALUE {
        word = word.wrapping_add(1);
    }
    top as usize - word as usize
}

/// Returns the size of the stack in bytes.
pub fn size_bytes() -> usize {
    let (top, bottom) = (&raw const _stack_start, &raw const _stack_end);
    top as usize - bottom as usize
}
