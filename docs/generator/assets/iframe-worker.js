"use strict";
// Browsers start no worker for a page that was opened from a file. Then the search runs in a hidden frame instead, which
// gets and sends the messages of a worker.
if (window.location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      const script = `
        window.postMessage = (message) => parent.postMessage(message, "*");
        window.importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((resolve) => {
          const other = document.createElement("script");
          other.src = url;
          other.onload = resolve;
          document.head.append(other);
        })));`;
      frame.srcdoc = `<!doctype html><base href="${document.baseURI}"><script>${script}</scr` +
        `ipt><script src="${new URL(url, document.baseURI)}"></scr` + `ipt>`;
      window.addEventListener("message", (event) => {
        if (event.source !== frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        this.onmessage?.(message);
      });
      this.loaded = new Promise((resolve) => (frame.onload = resolve));
      this.frame = frame;
      document.body.append(frame);
    }

    postMessage(message) {
      this.loaded.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: message }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
