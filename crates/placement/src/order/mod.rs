//! Orders over the slots of a table: by key, by time, by arrival.
//!
//! | module | order | cost of a change |
//! |---|---|---|
//! | `heap` | the least key first; any slot can move or leave | O(log n) |
//! | `list` | of arrival; any slot can leave | O(1) |
//! | `wheel` | by deadline, to the tick | O(1) |

pub mod heap;
pub mod list;
pub mod wheel;
