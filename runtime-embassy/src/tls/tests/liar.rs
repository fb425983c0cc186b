pub(super) struct Liar;
impl Liar { pub(super) fn hear(&mut self, _b: &[u8]) -> std::vec::Vec<u8> { std::vec::Vec::new() } }
