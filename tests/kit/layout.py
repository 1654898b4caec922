"""Overlapping or truncated texts in a browser."""

from __future__ import annotations

from playwright.sync_api import Frame, Page


def layout_faults(page: Page | Frame, root: str = "body") -> list[str]:
    """Describe texts below the elements of a selector that overlap or are cut.

    Texts that scroll, or end in an ellipsis with their whole text as a title, are not cut.
    """
    faults: list[str] = page.evaluate(_FAULTS, root)
    return faults


_FAULTS = """(root) => {
  const hides = (style, axis) => style[`overflow${axis}`] !== 'visible';
  const brief = (text) => text.trim().replace(/\\s+/g, ' ').slice(0, 40);
  const boxes = [];
  const faults = [];
  for (const top of document.querySelectorAll(root)) {
    const walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      const element = node.parentElement;
      if (!node.data.trim() || element.closest('script, style, select')) continue;
      if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const {left, right, top: upper, bottom: lower} of range.getClientRects()) {
        // A line of text is lower than its box.
        const rim = (lower - upper) / 4;
        const box = {left: left + 1, right: right - 1, upper: upper + rim, lower: lower - rim};
        for (let around = element; around && around !== top; around = around.parentElement) {
          const style = getComputedStyle(around);
          const area = around.getBoundingClientRect();
          if (hides(style, 'X')) {
            box.left = Math.max(box.left, area.left);
            box.right = Math.min(box.right, area.right);
          }
          if (hides(style, 'Y')) {
            box.upper = Math.max(box.upper, area.top);
            box.lower = Math.min(box.lower, area.bottom);
          }
        }
        if (box.left < box.right && box.upper < box.lower) boxes.push({...box, node});
      }
    }
    for (const element of top.querySelectorAll('*')) {
      if (!element.clientWidth || !element.textContent.trim()) continue;
      const style = getComputedStyle(element);
      const cut = (axis, size) => ['hidden', 'clip'].includes(style[`overflow${axis}`])
        && element[`scroll${size}`] > element[`client${size}`] + 1;
      const shortened = style.textOverflow === 'ellipsis' || style.webkitLineClamp !== 'none';
      if (!cut('X', 'Width') && !cut('Y', 'Height')) continue;
      if (shortened && element.closest('[title]')) continue;
      faults.push(`cut: ${brief(element.textContent)}`);
    }
  }
  boxes.sort((one, other) => one.upper - other.upper);
  boxes.forEach((one, place) => {
    for (let next = place + 1; next < boxes.length && boxes[next].upper < one.lower; next += 1) {
      const other = boxes[next];
      if (one.node !== other.node && other.left < one.right && one.left < other.right) {
        faults.push(`overlap: ${brief(one.node.data)} | ${brief(other.node.data)}`);
      }
    }
  });
  return [...new Set(faults)];
}"""
