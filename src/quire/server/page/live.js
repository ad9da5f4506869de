// Watches the server: yields its snapshots, and connects again after a loss.

import { ApiError, call, events } from "./api.js";

const PAUSES_S = [0.5, 1, 2, 4];

export class Watch {
  constructor({ onSnapshot, onLost }) {
    this.onSnapshot = onSnapshot;
    this.onLost = onLost;
    this.model = null;
    document.addEventListener("visibilitychange", () => this.restart());
    this.restart();
  }

  // Watch another model; null is the server's first one.
  choose(model) {
    if (model === this.model) return;
    this.model = model;
    this.restart();
  }

  restart() {
    this.controller?.abort();
    this.controller = new AbortController();
    if (!document.hidden) this.run(this.controller.signal);
  }

  async run(signal) {
    for (let losses = 0; !signal.aborted;) {
      try {
        const query = this.model ? `?model=${encodeURIComponent(this.model)}` : "";
        for await (const data of events(await call(`v1/live${query}`, { signal }))) {
          losses = 0;
          this.onSnapshot(JSON.parse(data));
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof ApiError && error.status === 404) this.model = null;
      }
      if (signal.aborted) return;
      this.onLost();
      const pause = PAUSES_S[Math.min(losses, PAUSES_S.length - 1)];
      losses += 1;
      await new Promise((resolve) => { setTimeout(resolve, pause * 1000); });
    }
  }
}
